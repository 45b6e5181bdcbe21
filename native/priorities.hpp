// A sum tree that follows a ring: its leaves are powers of priorities at the slots that can be drawn, 0 elsewhere.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "changes.hpp"
#include "kernels.hpp"

namespace relive {

// What the tree's state holds besides its own three numbers.
enum TreeState { LARGEST = 3, ITEMS = 4, STATE_SIZE = 5 };

inline void leaves(const Tree& tree, const int64_t* indices, int64_t n, double* values) {
    for (int64_t i = 0; i < n; ++i) values[i] = tree.sums[0][indices[i]];
}

// Fetch a leaf and what changes with it in the levels above, but for the small ones.
inline void fetch_to_write(const Tree& tree, int64_t index) {
    constexpr int LARGE = 3;
    RELIVE_PREFETCH_WRITE(tree.sums[0] + index);
    for (int level = 1; level < tree.levels && level < LARGE; ++level) {
        index /= FAN_OUT;
        RELIVE_PREFETCH_WRITE(tree.sums[level] + index);
        RELIVE_PREFETCH_WRITE(tree.mins[level - 1] + index);
    }
}

// The positive numbers in reverse order, exactly, and the way back: what is the smallest of one is the largest of the
// other. 0 stays, and infinity, the smallest of none, becomes 0.
inline double falling(double value) {
    constexpr int64_t INFINITE_BITS = 0x7ff0000000000000;
    return value > 0.0 ? std::bit_cast<double>(INFINITE_BITS - std::bit_cast<int64_t>(value)) : 0.0;
}

// The changes of a ring since a reader last looked, and the priorities of the added items.
class News {
public:
    std::vector<int64_t> gone, come;
    std::vector<double> values;  // of what came: what it was given, or else the largest ever set or given, or `initial`
    double largest = 0.0;
    int64_t items = 0;  // in the ring now
    bool same = false;  // one value stands for all

    // Nothing changes but what is gathered here; `seen`, which no one else moves on, does when `settle` is called. Of
    // what is gone, slots are left out whose leaf in the `tree` is 0 already (null: none).
    void gather(const Ring& ring, const Seen* seen, const Tree* tree, double largest_so_far, double initial) {
        if (seen != seen_) known_.forget();
        seen_ = seen;
        gone.clear();
        come.clear();
        rows_.clear();
        moved_.clear();
        const bool gives = ring.given && observe(*ring.any_given);
        bool cleared = false;
        largest = 0.0;
        bool waits = false;
        const auto take = [&](int64_t number) {
            const Lane& lane = ring.lane_of[number];
            const Seen& before = seen[number];
            const Seen now = look(ring, number, before, waits);
            if (!plausible(ring, before, now))
                throw std::invalid_argument("relive._ring._native: `seen` was never seen");
            if (now.oldest == before.oldest && now.ready == before.ready && now.head == before.head) return;
            moved_.push_back({number, now});
            cleared |= peek(lane.cleared) > before.oldest;
            if (gives) raise_by_given(ring, number, before, now);
            each_change(
                ring, number, before, now,
                [&](int64_t slot) {
                    if (!tree || holds(*tree, slot)) gone.push_back(slot);
                },
                [&](int64_t slot, int64_t row) {
                    come.push_back(slot);
                    rows_.push_back(row);
                });
        };
        drawable_.resize(size_t(Touched::groups_of(ring.lanes)));
        for (const Group& group : known_.changed(ring.touched, ring.lanes)) {
            int64_t& drawable = drawable_[size_t(group.number)] = 0;
            waits = false;
            for (int64_t number = group.first; number < group.last; ++number) {
                take(number);
                drawable += peek(ring.lane_of[number].drawable);
            }
            if (waits) known_.revisit(group);
        }
        items = std::accumulate(drawable_.begin(), drawable_.end(), int64_t(0));
        if (!cleared) largest = std::max(largest, largest_so_far);
        same = !gives;
        values.assign(same ? 1 : come.size(), largest > 0 ? largest : initial);
        for (size_t i = 0; gives && i < come.size(); ++i)
            if (const double given = peek(ring.given[rows_[i]]); std::signbit(given)) values[i] = -given;
    }

    void settle(Seen* seen) {
        for (const Look& look : moved_) seen[look.number] = look.now;
        known_.settle();
        for (auto* list : {&gone, &come, &rows_}) give_back(*list);
        give_back(values);
    }

    // What a refresh after thousands of steps needed, later calls do not.
    template <typename T>
    static void give_back(std::vector<T>& list) {
        constexpr size_t KEPT = 1 << 15;
        if (list.capacity() > KEPT) std::vector<T>().swap(list);
    }

private:
    struct Look {
        int64_t number;
        Seen now;
    };
    Known known_;
    const Seen* seen_ = nullptr;     // of the last call
    std::vector<int64_t> drawable_;  // items of each group
    std::vector<int64_t> rows_;
    std::vector<Look> moved_;

    // The sum is looked at first: where a sampler passed over rows, few lines are read.
    static bool holds(const Tree& tree, int64_t slot) {
        return (tree.levels == 1 || tree.sums[1][slot / FAN_OUT] != 0.0) && tree.sums[0][slot] != 0.0;
    }

    void raise_by_given(const Ring& ring, int64_t number, const Seen& before, const Seen& now) {
        const Position at = ring.position(number, now.head);
        const int64_t from = std::max(before.head, ring.first_row(number, now.head));
        for (int64_t row = from; row < now.head; ++row) {
            const int64_t stored = ring.storage_row(number, ring.memory_of(at, row));
            // A row that only holds an observation has the priority of a step that is long gone.
            if (ring.mark_at(stored) & (STEP | LOST)) largest = std::max(largest, -peek(ring.given[stored]));
        }
    }
};

class Priorities {
public:
    // Over the same leaves, `falling` raw priorities; then new items get the largest that is stored at the last update.
    Tree* raws = nullptr;

    // Take in what changed since `seen`, which moves on. Returns how many items have a positive priority.
    int64_t refresh(Tree& tree, const Ring& ring, Seen* seen, double initial, double alpha) {
        news_.gather(ring, seen, raws ? nullptr : &tree, tree.state[LARGEST], initial);
        const auto gone = int64_t(news_.gone.size()), come = int64_t(news_.come.size());
        scratch_.resize(size_t(gone + come));
        tree.state[LARGEST] = news_.largest;
        tree.state[ITEMS] = double(news_.items);
        if (gone + come > 0) {
            double* values = news_.values.data();
            if (raws) {
                values_.resize(news_.values.size());
                std::transform(news_.values.begin(), news_.values.end(), values_.begin(), falling);
                chosen().write(*raws, {news_.gone.data(), gone, news_.come.data(), come, values_.data(), !news_.same},
                               scratch_.data());
            }
            if (news_.same)
                values[0] = powered(values[0], alpha);
            else
                chosen().power(values, come, alpha, values);
            chosen().write(tree, {news_.gone.data(), gone, news_.come.data(), come, values, !news_.same},
                           scratch_.data());
        }
        if (ring.partial) tree.state[ITEMS] = tree.state[2];
        news_.settle(seen);
        News::give_back(scratch_);
        return int64_t(tree.state[2]);
    }

    // Set priorities from TD errors, `keep` saying which count (null: all); the last of several for one slot wins.
    // False, and nothing has changed, where a priority would not be finite.
    bool update(Tree& tree, const int64_t* slots, const double* td, const uint8_t* keep, int64_t n, double eps,
                double alpha) {
        values_.resize(size_t(n));
        const double largest = chosen().mass(td, n, eps, alpha, values_.data());
        if (!(largest < HUGE_VAL)) return false;
        if (keep) {
            come_.clear();
            raw_.clear();
            for (int64_t i = 0; i < n; ++i) {
                if (!keep[i]) continue;
                values_[come_.size()] = values_[size_t(i)];
                come_.push_back(slots[i]);
                raw_.push_back(td[i]);
            }
            slots = come_.data();
            td = raw_.data();
            n = int64_t(come_.size());
        }
        scratch_.resize(size_t(n));
        chosen().write(tree, {nullptr, 0, slots, n, values_.data(), 1}, scratch_.data());
        if (raws) {
            for (int64_t i = 0; i < n; ++i) values_[size_t(i)] = falling(std::fabs(td[i]) + eps);
            chosen().write(*raws, {nullptr, 0, slots, n, values_.data(), 1}, scratch_.data());
            tree.state[LARGEST] = falling(raws->state[1]);
            return true;
        }
        if (largest > tree.state[LARGEST])  // of those that won
            for (int64_t i = 0; i < n; ++i)
                if (tree.sums[0][slots[i]] == values_[size_t(i)])
                    tree.state[LARGEST] = std::max(tree.state[LARGEST], std::fabs(td[i]) + eps);
        return true;
    }

private:
    News news_;
    std::vector<int64_t> come_, scratch_;
    std::vector<double> values_, raw_;
    double powered_[3] = {-1.0};  // the last single priority, its exponent, and its power

    // New items mostly get one priority, again and again.
    double powered(double value, double alpha) {
        if (powered_[0] != value || powered_[1] != alpha) {
            chosen().power(&value, 1, alpha, &powered_[2]);
            powered_[0] = value, powered_[1] = alpha;
        }
        return powered_[2];
    }
};

}  // namespace relive
