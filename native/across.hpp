// Sequences across episodes, as lists of rows. Knows bytes and integers, no Python object.
#pragma once

#include <array>

#include "sequences.hpp"

namespace relive {

// Lists of storage rows: the observation at each position, the step before each, that step in its episode alone, the
// step at each, the observation behind the window of each. Row 0 of a ring's zeros where there is none.
enum List { OBSERVED, BEFORE, PREVIOUS, STEPS, AFTER, LISTS };
using Lists = std::array<int64_t*, LISTS>;

class Across : public Sequences {
public:
    Across(const Rows& ring, int64_t length, int64_t n, const float* powers)
        : Sequences(ring, length, n, powers, 0), ends_(size_t(length + n)) {}

    // Numbers that the lists of one sequence take.
    static int64_t room(int64_t length, int64_t n) { return 5 * length + 3 * n; }
    // The lists of so many sequences.
    Lists lists(int64_t* room, int64_t items) const {
        const int64_t wide = positions() * items, narrow = targets_.length * items;
        return {room, room + wide, room + 2 * wide, room + 3 * wide, room + 3 * wide + narrow};
    }

    // What is known of the windows of so many sequences that are whole and have no end.
    void open(int64_t items, const Unrolled& out) const {
        Targets{targets_.length * items, targets_.n, targets_.powers}.open(0, targets_.length * items, out);
    }

    // List the sequence that starts at a drawable slot, `step` entries from one position to the next, and note what is
    // known of its windows, which are open.
    template <typename Step>
    Around list(int64_t slot, const Lists& to, Step step, const Unrolled& out) {
        int64_t memory, at;
        Position now;
        Around found = around(slot, memory, at, now);
        int64_t* const observed = to[OBSERVED];
        int64_t ends;
        const int64_t steps = walk(at, ring_.storage_row(found.number, now.memory), observed, step, ends, found.behind);
        const int64_t most = positions(), length = targets_.length, n = targets_.n, zero = ring_.zero_row();
        for (int64_t i = steps; i < most; ++i) observed[i * step] = found.behind;
        to[BEFORE][0] = to[PREVIOUS][0] = found.before;
        for (int64_t i = 1; i < most; ++i) {
            const int64_t row = i <= steps ? observed[(i - 1) * step] : zero;
            to[BEFORE][i * step] = to[PREVIOUS][i * step] = row;
        }
        for (int64_t i = 0; i < length; ++i) {
            to[STEPS][i * step] = i < steps ? observed[i * step] : zero;
            to[AFTER][i * step] = observed[(i + n) * step];
        }
        if (steps < length) targets_.open(0, steps, out);
        for (int64_t k = 0, begin = 0; k < ends; begin = ends_[size_t(k++)]) {
            const int64_t end = ends_[size_t(k)], row = observed[(end - 1) * step], after = ring_.successor_of(row);
            const uint8_t mark = ring_.mark_at(row);
            for (int64_t i = std::max(begin, end - n); i < std::min(end, length); ++i) to[AFTER][i * step] = after;
            if (!(mark & CUT) && end < most) to[PREVIOUS][end * step] = zero;
            targets_.close(mark, begin, end, out);
        }
        return found;
    }

private:
    std::vector<int64_t> ends_;  // positions behind those of the steps that end episodes

    // Walk from the step at a storage row on, no further than to where the lane's next row goes; how many steps there
    // are. No branch depends on whether a row is a step, or an end.
    template <typename Step>
    int64_t walk(int64_t at, int64_t stop, int64_t* rows, Step step, int64_t& ends, int64_t& behind) {
        const uint8_t* const mark_of = ring_.marks;
        const Places::Next next = ring_.next();
        const int64_t most = positions();
        int64_t steps = 0, found = 0;
        int64_t* const end_of = ends_.data();
        bool cut;
        uint8_t mark;
        do {
            mark = peek(mark_of[at]);
            const bool there = mark & STEP;
            rows[steps * step] = at;
            steps += there;
            end_of[found] = steps;
            found += there & ((mark & END) != 0);
            cut = there & ((mark & CUT) != 0);
            at = next(at);
        } while ((steps < most) & (at != stop) & !cut);
        ends = found;
        const bool whole = cut || (steps == most && mark & END);
        behind = whole ? ring_.successor_of(rows[(steps - 1) * step]) : at;
        return steps;
    }
};

}  // namespace relive
