// A sum tree that follows a ring: its leaves are powers of priorities at the slots that can be drawn, 0 elsewhere.
#pragma once

#include <cmath>
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

class Priorities {
public:
    // Take in what changed since `seen`, which moves on. New items get the priority that they were given, or else the
    // largest ever set or given, or else `initial`. Returns how many items have a positive priority.
    int64_t refresh(Tree& tree, const Ring& ring, Seen* seen, double initial, double alpha) {
        gone_.clear();
        come_.clear();
        rows_.clear();
        const bool gives = ring.given && observe(*ring.any_given);
        int64_t items = 0;
        moved_.clear();
        for (int64_t number = 0; number < ring.lanes; ++number) {
            const Lane& lane = ring.lane_of[number];
            const Seen now = look(lane);
            items += lane.drawable;
            const Seen& before = seen[number];
            if (!plausible(ring, before, now)) throw std::invalid_argument("relive._native: `seen` was never seen");
            if (now.oldest == before.oldest && now.ready == before.ready && now.head == before.head) continue;
            moved_.push_back({number, now});
            if (gives) raise_by_given(tree, ring, number, before, now);
            each_change(
                ring, number, before, now, [&](int64_t slot) { gone_.push_back(slot); },
                [&](int64_t slot, int64_t row) {
                    come_.push_back(slot);
                    rows_.push_back(row);
                });
        }
        tree.state[ITEMS] = double(items);
        if (gone_.empty() && come_.empty()) {
            settle(seen);
            return int64_t(tree.state[2]);
        }
        const double usual = tree.state[LARGEST] > 0 ? tree.state[LARGEST] : initial;
        values_.assign(gives ? come_.size() : 1, usual);
        for (size_t i = 0; gives && i < come_.size(); ++i)
            if (std::signbit(ring.given[rows_[i]])) values_[i] = -ring.given[rows_[i]];
        chosen().power(values_.data(), int64_t(values_.size()), alpha, values_.data());
        scratch_.resize(gone_.size() + come_.size());
        chosen().write(
            tree, {gone_.data(), int64_t(gone_.size()), come_.data(), int64_t(come_.size()), values_.data(), gives},
            scratch_.data());
        settle(seen);
        for (auto* list : {&gone_, &come_, &rows_, &scratch_}) give_back(*list);
        give_back(values_);
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
        if (largest > tree.state[LARGEST])  // of those that won
            for (int64_t i = 0; i < n; ++i)
                if (tree.sums[0][slots[i]] == values_[size_t(i)])
                    tree.state[LARGEST] = std::max(tree.state[LARGEST], std::fabs(td[i]) + eps);
        return true;
    }

private:
    struct Look {
        int64_t number;
        Seen now;
    };
    std::vector<int64_t> gone_, come_, rows_, scratch_;
    std::vector<double> values_, raw_;
    std::vector<Look> moved_;

    // What a refresh after thousands of steps needed, later calls do not.
    template <typename T>
    static void give_back(std::vector<T>& list) {
        constexpr size_t KEPT = 1 << 15;
        if (list.capacity() > KEPT) std::vector<T>().swap(list);
    }

    void settle(Seen* seen) const {
        for (const Look& look : moved_) seen[look.number] = look.now;
    }

    static void raise_by_given(Tree& tree, const Ring& ring, int64_t number, const Seen& before, const Seen& now) {
        const Position at = ring.position(number, now.head);
        for (int64_t row = std::max(before.head, now.head - ring.rows); row < now.head; ++row) {
            const double given = -ring.given[ring.storage_row(number, ring.memory_of(at, row))];
            tree.state[LARGEST] = std::max(tree.state[LARGEST], given);
        }
    }
};

}  // namespace relive
