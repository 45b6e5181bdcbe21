// Which steps' achievements become the goals of relabelled items. Knows integers, no Python object.
// `_ring/kernels_numpy/gather.py` states the same rules in readable form and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "rows.hpp"

namespace relive {

// Where a goal comes from: a step drawn from the anchor on, the last step, a step drawn from the whole stream.
enum class Strategy : int64_t { FUTURE, FINAL, EPISODE };

// One entry an item that is relabelled; those from `goals` on have one a step of its window.
struct Relabelling {
    // Numbers in memory that was asked for before: a vector would look for room at each of them.
    struct List {
        std::unique_ptr<int64_t[]> values;
        int64_t size = 0;

        void reserve(int64_t room) { values = std::make_unique_for_overwrite<int64_t[]>(size_t(room)); }
        void add(int64_t value) { values[size_t(size++)] = value; }
    };
    List which, ids, ahead, goals, item, ages, after, rows;
};

class Relabeller {
public:
    Relabeller(const Rows& rows, int64_t n, Strategy strategy)
        : ring_(rows), n_(n), strategy_(strategy), seen_(size_t(rows.lanes), {-1, 0, 0}), held_(size_t(rows.lanes)) {}

    // Relabel the items of which the number in `whether` lies below `ratio`.
    void relabel(const int64_t* slots, const double* whether, double ratio, const double* where, int64_t count,
                 Relabelling& out) {
        for (auto* list : {&out.which, &out.ids, &out.ahead}) list->reserve(count);
        for (auto* list : {&out.goals, &out.item, &out.ages, &out.after, &out.rows}) list->reserve(count * n_);
        int64_t* const which = out.which.values.get();
        int64_t some = 0;
        for (int64_t i = 0; i < count; ++i) {  // no branch, which could not be foreseen
            which[some] = i;
            some += whether[i] < ratio;
        }
        const auto anchors = std::make_unique_for_overwrite<Anchor[]>(size_t(some));
        for (int64_t k = 0; k < some; ++k) {
            anchors[size_t(k)] = anchor(slots[which[k]]);
            RELIVE_PREFETCH(ring_.marks + anchors[size_t(k)].at);
        }
        for (int64_t k = 0; k < some; ++k) one(which[k], anchors[size_t(k)], where[which[k]], out);
    }

private:
    struct Anchor {
        int64_t number, row, at;
    };

    const Rows& ring_;
    int64_t n_;
    Strategy strategy_;
    // Of each lane at its first item: another process may add steps meanwhile, and what those achieved is left out.
    std::vector<Position> seen_;
    std::vector<int64_t> held_;

    int64_t at(int64_t number, int64_t row) const {
        return ring_.storage_row(number, ring_.memory_of(seen_[size_t(number)], row));
    }

    Anchor anchor(int64_t slot) {
        int64_t lane_slot, number;
        ring_.split(slot, lane_slot, number);
        Position& now = seen_[size_t(number)];
        if (now.head < 0) {
            held_[size_t(number)] = observe(ring_.lane_of[number].held);
            now = ring_.position(number);
        }
        const int64_t row = ring_.row_at(now, lane_slot);
        return {number, row, at(number, row)};
    }

    // As of all rows. Most ends are near, and no branch on where could be foreseen.
    static int64_t steps_to_end(const uint8_t* mark, int64_t n) {
        int64_t none = 0;
#if defined(__SSE2__) && !defined(RELIVE_ATOMIC_COPIES)
        constexpr int64_t NEAR = 64;
        if (n >= NEAR) {
            uint64_t ends = 0;
            for (int64_t i = 0; i < NEAR; i += 16) {
                const __m128i marks = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mark + i));
                const __m128i others = _mm_cmpeq_epi8(_mm_and_si128(marks, _mm_set1_epi8(END)), _mm_setzero_si128());
                ends |= uint64_t(~uint32_t(_mm_movemask_epi8(others)) & 0xffff) << i;
            }
            if (ends) return std::countr_zero(ends) + 1;
            none = NEAR;
        }
#endif
        return none + Rows::steps_to_end(mark + none, n - none);
    }

    // The row of the last step up to the first end, which there is none of among the `count` first ones; `count`
    // becomes how many steps there are.
    int64_t last_of(const Anchor& anchor, int64_t& count) const {
        const Position& seen = seen_[size_t(anchor.number)];
        int64_t last = anchor.at + count - 1;
        int64_t memory = ring_.wrapped(ring_.memory_of(seen, anchor.row) + count);
        while (anchor.row + count < seen.head) {
            const int64_t n = std::min(seen.head - anchor.row - count, ring_.together(memory));
            const int64_t found = steps_to_end(ring_.marks + ring_.storage_row(anchor.number, memory), n);
            last = ring_.storage_row(anchor.number, memory + found - 1);
            count += found;
            if (ring_.mark_at(last) & END) break;
            memory = ring_.wrapped(memory + found);
        }
        return last;
    }

    void one(int64_t i, const Anchor& anchor, double where, Relabelling& out) {
        const int64_t number = anchor.number, id = anchor.row * ring_.lanes + number;
        const int64_t steps = n_ == 1 ? 1 : ring_.window(anchor.at, n_).steps;
        const int64_t head = seen_[size_t(number)].head;
        // How many steps there are up to the first end, and where the last one of them is; most lie together.
        const int64_t near = std::min(head - anchor.row, ring_.together_from(anchor.at));
        int64_t count = steps_to_end(ring_.marks + anchor.at, near), last = anchor.at + count - 1;
        if (!(ring_.mark_at(last) & END)) last = last_of(anchor, count);
        const uint8_t mark = ring_.mark_at(last);
        int64_t ahead = count - 1;  // how many steps later the last one is of which is known what it achieved
        const bool newest = anchor.row + ahead + 1 == head && held_[size_t(number)] == head;
        if (mark & LOST || !(mark & END || newest)) --ahead;
        if (ahead < steps - 1) return;  // what a step of the window achieved is not known
        const int64_t goal = chosen(anchor, ahead, where);
        const bool together = goal >= 0 && goal < near;
        const int64_t achieved = ring_.successor_of(together ? anchor.at + goal : at(number, anchor.row + goal));
        for (int64_t age = 0, row = anchor.at; age < steps; ++age, row = ring_.next_row(row)) {
            out.goals.add(achieved);
            out.item.add(out.which.size);
            out.ages.add(age);
            out.rows.add(row);
            out.after.add(ring_.successor_of(row));
        }
        out.which.add(i);
        out.ids.add(id);
        out.ahead.add(goal);
    }

    // How many steps later (earlier, where negative) the goal was achieved.
    int64_t chosen(const Anchor& anchor, int64_t ahead, double where) {
        if (strategy_ == Strategy::FINAL) return ahead;
        int64_t first = 0;
        if (strategy_ == Strategy::EPISODE) {
            const int64_t oldest = ring_.first_row(anchor.number, seen_[size_t(anchor.number)].head);
            for (int64_t row = anchor.at; anchor.row + first > oldest; --first) {
                row = ring_.previous_row(row);
                if ((ring_.mark_at(row) & (STEP | END)) != STEP) break;
            }
            first = std::max(first, std::min<int64_t>(peek(ring_.lane_of[anchor.number].gone) - anchor.row, 0));
        }
        // The product may be rounded up to the number of steps.
        return std::min(first + int64_t(where * double(ahead - first + 1)), ahead);
    }
};

}  // namespace relive
