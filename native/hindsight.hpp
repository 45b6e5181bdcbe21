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

// An item that may get another goal: its place among the items; lane, row and storage row of its anchor.
struct Anchor {
    int64_t item, number, row, at;
};
// The steps of its window, how many steps later the goal was achieved, and the storage row of what was achieved then.
struct Goal {
    int64_t steps, ahead, achieved;
};

class Relabeller {
public:
    Relabeller(const Rows& rows, int64_t n, Strategy strategy)
        : ring_(rows), n_(n), strategy_(strategy), seen_(size_t(rows.lanes), {{-1, 0, 0}, 0}) {}

    // Find goals for the items of which the number in `whether` lies below `ratio`, in order; `each` gets them.
    // `anchors`: room for as many.
    template <typename Each>
    void relabel(const int64_t* slots, const double* whether, double ratio, const double* where, int64_t count,
                 Anchor* anchors, Each each) {
        int64_t some = 0;
        for (int64_t i = 0; i < count; ++i) {  // no branch, which could not be foreseen
            anchors[some].item = i;
            some += whether[i] < ratio;
        }
        for (int64_t k = 0; k < some; ++k) locate(slots[anchors[k].item], anchors[k]);
        Goal goal;
        for (int64_t k = 0; k < some; ++k)
            if (found(anchors[k], where[anchors[k].item], goal)) each(anchors[k], goal);
    }
    // The same, with the steps of their windows.
    void relabel(const int64_t* slots, const double* whether, double ratio, const double* where, int64_t count,
                 Relabelling& out) {
        for (auto* list : {&out.which, &out.ids, &out.ahead}) list->reserve(count);
        for (auto* list : {&out.goals, &out.item, &out.ages, &out.after, &out.rows}) list->reserve(count * n_);
        const auto anchors = std::make_unique_for_overwrite<Anchor[]>(size_t(count));
        relabel(slots, whether, ratio, where, count, anchors.get(), [&](const Anchor& of, const Goal& goal) {
            for (int64_t age = 0, row = of.at; age < goal.steps; ++age, row = ring_.next_row(row)) {
                out.goals.add(goal.achieved);
                out.item.add(out.which.size);
                out.ages.add(age);
                out.rows.add(row);
                out.after.add(ring_.successor_of(row));
            }
            out.which.add(of.item);
            out.ids.add(of.row * ring_.lanes + of.number);
            out.ahead.add(goal.ahead);
        });
    }

private:
    static constexpr int64_t NEAR = 64;  // marks that are looked at together

    struct Seen {
        Position now;
        int64_t held;
    };

    const Rows& ring_;
    int64_t n_;
    Strategy strategy_;
    // Each lane at its first item: another process may add steps meanwhile, and what those achieved is left out.
    std::vector<Seen> seen_;

    int64_t at(int64_t number, int64_t row) const {
        return ring_.storage_row(number, ring_.memory_of(seen_[size_t(number)].now, row));
    }

    void locate(int64_t slot, Anchor& of) {
        int64_t lane_slot;
        ring_.split(slot, lane_slot, of.number);
        Seen& seen = seen_[size_t(of.number)];
        if (seen.now.head < 0) {
            seen.held = observe(ring_.lane_of[of.number].held);
            seen.now = ring_.position(of.number);
        }
        of.row = ring_.row_at(seen.now, lane_slot);
        of.at = at(of.number, of.row);
        prefetch_row(reinterpret_cast<const char*>(ring_.marks + of.at), NEAR);
    }

    // As of all rows. Most ends are near, and no branch on where could be foreseen.
    static int64_t steps_to_end(const uint8_t* mark, int64_t n) {
        int64_t none = 0;
#if defined(__SSE2__) && !defined(RELIVE_ATOMIC_COPIES)
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
    int64_t last_of(const Anchor& of, int64_t& count) const {
        const Position& seen = seen_[size_t(of.number)].now;
        int64_t last = of.at + count - 1;
        int64_t memory = ring_.wrapped(ring_.memory_of(seen, of.row) + count);
        while (of.row + count < seen.head) {
            const int64_t n = std::min(seen.head - of.row - count, ring_.together(memory));
            const int64_t found = steps_to_end(ring_.marks + ring_.storage_row(of.number, memory), n);
            last = ring_.storage_row(of.number, memory + found - 1);
            count += found;
            if (ring_.mark_at(last) & END) break;
            memory = ring_.wrapped(memory + found);
        }
        return last;
    }

    // Whether it is known what each step of an item's window achieved; then the goal is chosen.
    bool found(const Anchor& of, double where, Goal& goal) const {
        const int64_t number = of.number, head = seen_[size_t(number)].now.head;
        goal.steps = n_ == 1 ? 1 : ring_.window(of.at, n_).steps;
        // How many steps there are up to the first end, and where the last one of them is; most lie together.
        const int64_t near = std::min(head - of.row, ring_.together_from(of.at));
        int64_t count = steps_to_end(ring_.marks + of.at, near), last = of.at + count - 1;
        if (!(ring_.mark_at(last) & END)) last = last_of(of, count);
        const uint8_t mark = ring_.mark_at(last);
        int64_t ahead = count - 1;  // how many steps later the last one is of which is known what it achieved
        const bool newest = of.row + ahead + 1 == head && seen_[size_t(number)].held == head;
        if (mark & LOST || !(mark & END || newest)) --ahead;
        if (ahead < goal.steps - 1) return false;
        goal.ahead = chosen(of, ahead, where);
        const bool together = goal.ahead >= 0 && goal.ahead < near;
        goal.achieved = ring_.successor_of(together ? of.at + goal.ahead : at(number, of.row + goal.ahead));
        return true;
    }

    // How many steps later (earlier, where negative) the goal was achieved.
    int64_t chosen(const Anchor& of, int64_t ahead, double where) const {
        if (strategy_ == Strategy::FINAL) return ahead;
        int64_t first = 0;
        if (strategy_ == Strategy::EPISODE) {
            const int64_t oldest = ring_.first_row(of.number, seen_[size_t(of.number)].now.head);
            for (int64_t row = of.at; of.row + first > oldest; --first) {
                row = ring_.previous_row(row);
                if ((ring_.mark_at(row) & (STEP | END)) != STEP) break;
            }
            first = std::max(first, std::min<int64_t>(peek(ring_.lane_of[of.number].gone) - of.row, 0));
        }
        // The product may be rounded up to the number of steps.
        return std::min(first + int64_t(where * double(ahead - first + 1)), ahead);
    }
};

}  // namespace relive
