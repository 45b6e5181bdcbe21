// Sequences across episodes, as lists of rows. Knows bytes and integers, no Python object.
#pragma once

#include "sequences.hpp"

namespace relive {

// An end in a sequence: windows from the position `first` on, before `end`, see the observation at the storage row
// `after`. `begins`: no step of the same episode is before the observation at `end`.
struct Joint {
    int64_t after;
    int32_t item, first, end, begins;
};

// The storage rows of the observations at the positions of sequences, of the steps before them (zeros where there is
// none), and all their ends, one after the other.
struct Lists {
    int64_t *observed, *before;
    Joint *joints, *last;

    Lists(int64_t* room, int64_t rows)
        : observed(room), before(room + rows), joints(reinterpret_cast<Joint*>(room + 2 * rows)), last(joints) {}
    // Numbers that a row needs room for.
    static constexpr int64_t ROOM = 2 + sizeof(Joint) / sizeof(int64_t);
};

class Across : public Sequences {
public:
    Across(const Rows& ring, int64_t length, int64_t n, const float* powers) : Sequences(ring, length, n, powers, 0) {}

    // Note the windows of so many sequences as if all were whole and had no end.
    void open(int64_t items, const Unrolled& out) const {
        const int64_t all = targets_.length * items;
        Targets{all, targets_.n, targets_.powers}.open(0, all, out);
    }

    // List the sequence that starts at a drawable slot as item `b`, from an entry on, `step` entries from one position
    // to the next, and note its windows, which are open.
    template <typename Step>
    Around list(int64_t slot, int64_t b, int64_t entry, Step step, Lists& to, const Unrolled& out) const {
        int64_t memory, at;
        Position now;
        Around found = around(slot, memory, at, now);
        int64_t *const observed = to.observed + entry, *const before = to.before + entry;
        Joint* joint = to.last;
        const int64_t steps = walk(at, ring_.storage_row(found.number, now.memory), observed, step, to, found.behind);
        const int64_t most = positions(), length = targets_.length, zero = ring_.zero_row();
        for (int64_t i = steps; i < most; ++i) observed[i * step] = found.behind;
        before[0] = found.before;
        for (int64_t i = 1; i < most; ++i) before[i * step] = i <= steps ? observed[(i - 1) * step] : zero;
        if (steps < length) targets_.open(0, steps, out);
        for (int64_t begin = 0; joint != to.last; begin = joint++->end) {
            const int64_t row = observed[(joint->end - 1) * step];
            const uint8_t mark = ring_.mark_at(row);
            joint->after = ring_.successor_of(row);
            joint->item = int32_t(b);
            joint->first = int32_t(std::max(begin, joint->end - targets_.n));
            joint->begins = !(mark & CUT) && joint->end < most;
            targets_.close(mark, begin, joint->end, out);
        }
        return found;
    }

    // The ids of the steps of a sequence, of which a list has the rows behind its first entry; -1 where there is none.
    template <typename Step>
    void ids(const Around& found, const int64_t* before, Step step, int64_t* out) const {
        before += step;
        for (int64_t i = 0; i < targets_.length; ++i) {
            const int64_t at = before[i * step];
            const int64_t on = ring_.wrapped(ring_.memory_at(at) - ring_.memory_at(before[0]) + ring_.depth);
            out[i * step] = at == ring_.zero_row() ? -1 : (found.row + on) * ring_.lanes + found.number;
        }
    }

private:
    // Walk from the step at a storage row on, no further than to where the lane's next row goes; how many steps there
    // are. No branch depends on where episodes end, unless eight steps follow one another.
    template <typename Step>
    int64_t walk(int64_t at, int64_t stop, int64_t* rows, Step step, Lists& to, int64_t& behind) const {
        const uint8_t* const mark_of = ring_.marks;
        const Places::Next next = ring_.next();
        const int64_t most = positions();
        int64_t steps = 0;
        Joint* joint = to.last;
        bool cut = false;
        uint8_t mark = 0;
        do {
            if (steps + 8 < most && next.together(at) > 8 && uint64_t(stop - at) > 8 && plain_steps(mark_of + at)) {
                for (int64_t i = 0; i < 8; ++i) rows[(steps + i) * step] = at + i;
                steps += 8, at += 8;
                continue;
            }
            mark = peek(mark_of[at]);
            const bool there = mark & STEP;
            rows[steps * step] = at;
            steps += there;
            joint->end = int32_t(steps);
            joint += there & ((mark & END) != 0);
            cut = there & ((mark & CUT) != 0);
            at = next(at);
        } while ((steps < most) & (at != stop) & !cut);
        to.last = joint;
        behind = cut || (steps == most && mark & END) ? ring_.successor_of(rows[(steps - 1) * step]) : at;
        return steps;
    }

    // Whether the next eight rows are steps that end nothing.
    bool plain_steps(const uint8_t* marks) const { return Rows::eight_are(marks, STEP, STEP | END); }
};

}  // namespace relive
