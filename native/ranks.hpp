// The order of a ring's items by their priorities, and a sum tree over its ranks.
#pragma once

#include <algorithm>
#include <numeric>

#include "priorities.hpp"

namespace relive {

// What the state of a ranking holds: the largest raw priority ever set or given, and how often one was set.
enum RanksState { MOST = 0, CLOCK = 1, RANKS_STATE = 2 };

// How many leaves and inner nodes there can be. Neighbours below one parent have at least 12 members together, so n
// members need at most n / 6 nodes and one more for each of their parents: less than n / 4.
struct Pools {
    int64_t leaves, inner;
    explicit Pools(int64_t capacity) : leaves(capacity / 4 + 16), inner(leaves / 4 + 16) {}
};

constexpr int64_t NUMBER = sizeof(double);

// Float64 numbers that an order over `capacity` slots takes.
inline int64_t order_size(int64_t capacity) {
    const Pools pools(capacity);
    const auto nodes = pools.leaves * int64_t(sizeof(Leaf)) + pools.inner * int64_t(sizeof(Inner));
    return nodes / NUMBER + ORDER_STATE + (capacity + 1) / 2;
}

inline Order order_in(double* memory, int64_t capacity) {
    const Pools pools(capacity);
    Order order;
    order.leaves = reinterpret_cast<Leaf*>(memory);
    order.inner = reinterpret_cast<Inner*>(order.leaves + pools.leaves);
    order.state = reinterpret_cast<int64_t*>(order.inner + pools.inner);
    order.home = reinterpret_cast<int32_t*>(order.state + ORDER_STATE);
    return order;
}

// Whether an order's memory is that of an empty one.
inline bool is_empty(const Order& order, int64_t capacity) {
    std::int64_t found = 0;
    for (int i = 0; i < ORDER_STATE; ++i) found |= order.state[i];
    for (int64_t slot = 0; slot < capacity; ++slot) found |= order.home[slot];
    return !found;
}

class Ranks {
public:
    Tree* tree = nullptr;  // its leaves are rank ** -alpha, for as many ranks as there were at the last draw
    double alpha = 0.0;
    Order order;
    int64_t capacity = 0;
    double* raw = nullptr;      // the priority of every slot, 0 where there is none
    int64_t* stamps = nullptr;  // and when it was set
    double* state = nullptr;

    int64_t size() const { return order.state[ENTRIES]; }

    // Put what `raw` and `stamps` hold in order, as a killed process left them. The largest priority was noted before
    // `raw` was written to; new items may have a larger one, `initial`.
    void rebuild() {
        slots_.clear();
        for (int64_t slot = 0; slot < capacity; ++slot)
            if (raw[slot] > 0.0) slots_.push_back(slot);
        std::sort(slots_.begin(), slots_.end(), [this](int64_t one, int64_t other) {
            return raw[one] != raw[other] ? raw[one] > raw[other] : stamps[one] < stamps[other];
        });
        values_.resize(slots_.size());
        for (size_t i = 0; i < slots_.size(); ++i) {
            values_[i] = raw[slots_[i]];
            state[CLOCK] = std::max(state[CLOCK], double(stamps[slots_[i]] + 1));
        }
        chosen().reorder(order, nullptr, 0, slots_.data(), values_.data(), int64_t(slots_.size()));
        News::give_back(slots_);
        News::give_back(values_);
    }

    // Take in what changed since `seen`, which moves on. Returns how many items have a rank.
    int64_t refresh(const Ring& ring, Seen* seen, double initial) {
        news_.gather(ring, seen, state[MOST], initial, true);
        const auto gone = int64_t(news_.gone.size()), come = int64_t(news_.come.size());
        if (news_.same) news_.values.resize(size_t(come), news_.values[0]);
        state[MOST] = news_.largest;
        tree->state[ITEMS] = double(news_.items);
        for (const int64_t slot : news_.gone) raw[slot] = 0.0;
        stamp(news_.come.data(), come);
        set(news_.gone.data(), gone, news_.come.data(), news_.values.data(), come);
        news_.settle(seen);
        return size();
    }

    // Set priorities from TD errors; see `Priorities::update`.
    bool update(const int64_t* slots, const double* td, const uint8_t* keep, int64_t n, double eps) {
        slots_.resize(size_t(n));
        values_.resize(size_t(n));
        size_t kept = 0;
        for (int64_t i = 0; i < n; ++i) {
            const double value = std::fabs(td[i]) + eps;
            if (!(value < HUGE_VAL)) return false;
            slots_[kept] = slots[i];
            values_[kept] = value;
            kept += !keep || keep[i];
        }
        for (size_t i = 0; i < kept; ++i) {
            RELIVE_PREFETCH_WRITE(stamps + slots_[i]);
            RELIVE_PREFETCH_WRITE(raw + slots_[i]);
            RELIVE_PREFETCH_WRITE(order.home + slots_[i]);
        }
        const auto first = stamp(slots_.data(), int64_t(kept));
        size_t won = 0;  // the last of several for one slot has left its stamp there
        for (size_t i = 0; i < kept; ++i) {
            slots_[won] = slots_[i];
            values_[won] = values_[i];
            won += stamps[slots_[i]] == first + int64_t(i);
        }
        for (size_t i = 0; i < won; ++i) state[MOST] = std::max(state[MOST], values_[i]);
        set(nullptr, 0, slots_.data(), values_.data(), int64_t(won));
        return true;
    }

    // Give the tree as many leaves as there are ranks.
    void fit() {
        constexpr int64_t SOME = 512;
        const double fitted = tree->state[2];
        if (!(fitted >= 0.0 && fitted <= double(capacity)))
            throw std::invalid_argument("relive._ring._native.Ranks: no tree");
        auto rank = int64_t(fitted);
        const int64_t ranks = size();
        for (int64_t count; rank != ranks; rank += rank < ranks ? count : -count) {
            count = std::min(SOME, std::abs(ranks - rank));
            const int64_t begin = rank < ranks ? rank : rank - count;
            int64_t leaves[SOME], scratch[SOME];
            double mass[SOME] = {};
            for (int64_t i = 0; i < count; ++i) leaves[i] = begin + i;
            if (rank < ranks) {
                for (int64_t i = 0; i < count; ++i) mass[i] = double(begin + i + 1);
                chosen().power(mass, count, -alpha, mass);
            }
            chosen().write(*tree, {nullptr, 0, leaves, count, mass, 1}, scratch);
        }
    }

private:
    News news_;
    std::vector<int64_t> slots_;
    std::vector<double> values_;

    // Note that slots are set now, one after the other; returns the first stamp.
    int64_t stamp(const int64_t* slots, int64_t n) {
        const auto first = int64_t(state[CLOCK]);
        for (int64_t i = 0; i < n; ++i) stamps[slots[i]] = first + i;
        state[CLOCK] = double(first + n);
        return first;
    }

    // A process may be killed at any moment: every priority is then the old one or the new one.
    void set(const int64_t* gone, int64_t gone_count, const int64_t* slots, const double* values, int64_t n) {
        for (int64_t i = 0; i < n; ++i) raw[slots[i]] = values[i];
        chosen().reorder(order, gone, gone_count, slots, values, n);
    }
};

}  // namespace relive
