// Sequences of steps, as runs of rows. Knows bytes and integers, no Python object.
// `_ring/kernels_numpy/rows.py` states the same rules, a step at a time, and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "rows.hpp"

namespace relive {

// Successive steps of a lane, from a position in its memory on; `after` is the storage row of the observation behind
// them, `mark` that of the last one.
struct Run {
    int64_t memory, count, after;
    uint8_t mark;
};

// A sequence's lane and the row of its anchor there, the row before its steps (of zeros where there is none), the row
// that stands at all positions behind them, and how many positions are in front: there is no step, and the first one's
// observation.
struct Around {
    int64_t number = 0, row = 0, before = 0, behind = 0, lead = 0;
    bool first = false;  // its first step begins an episode, or a stream
};

// One sequence up to the first end, which is all of it but across episodes.
struct Stretch : Around {
    Run run;
};

// One sequence.
struct Sequence : Around {
    std::vector<Run> runs;
    int64_t steps = 0;
};

inline std::span<const Run> runs_of(const Stretch& stretch) { return {&stretch.run, 1}; }
inline std::span<const Run> runs_of(const Sequence& sequence) { return sequence.runs; }

// Where what is known of a sequence is written down, `step` entries from one position to the next; null: it is not
// asked for.
struct Unrolled {
    int32_t* steps = nullptr;
    float* discount = nullptr;
    uint8_t *terminated = nullptr, *truncated = nullptr, *mask = nullptr;
    int64_t step = 1;

    // So many entries on: another sequence of the draw.
    Unrolled from(int64_t entry, int64_t between = 1) const {
        const auto on = [=](auto* to) { return to ? to + entry : to; };
        return {on(steps), on(discount), on(terminated), on(truncated), on(mask), between};
    }
};

// Windows of at most `n` steps at each of the first `length` positions of sequences. Needs nothing of a ring.
struct Targets {
    int64_t length, n;
    const float* powers;

    // Of a sequence that has steps at the positions from `lead` on, before `end`, as if it had no end.
    RELIVE_INLINE void open(int64_t lead, int64_t end, const Unrolled& out) const {
        const int64_t stop = std::min(end, length), start = std::min(lead, stop);
        const auto fill = [&](auto* to, auto inside) {
            const decltype(inside) none(0);
            if (!to) return;
            if (out.step == 1) {
                std::fill(to, to + start, none);
                std::fill(to + start, to + stop, inside);
                std::fill(to + stop, to + length, none);
            } else {
                for (int64_t i = 0; i < length; ++i) to[i * out.step] = i >= start && i < stop ? inside : none;
            }
        };
        fill(out.mask, uint8_t(1));
        fill(out.steps, int32_t(n));
        fill(out.discount, powers[n]);
        fill(out.terminated, uint8_t(0));
        fill(out.truncated, uint8_t(0));
    }
    // Its windows that reach an end, which the step before the position `end` has; `begin`: where its run begins.
    void close(uint8_t mark, int64_t begin, int64_t end, const Unrolled& out) const {
        for (int64_t i = std::max(begin, end - n); mark & END && i < std::min(end, length); ++i) {
            const int64_t k = i * out.step;
            if (out.steps) out.steps[k] = int32_t(end - i);
            if (out.discount) out.discount[k] = mark & (TERMINATED | LOST) ? 0.0f : powers[end - i];
            if (out.terminated) out.terminated[k] = (mark & TERMINATED) != 0;
            if (out.truncated) out.truncated[k] = (mark & TRUNCATED) != 0;
        }
    }
};

class Sequences {
public:
    Sequences(const Rows& ring, int64_t length, int64_t n, const float* powers, int64_t burn_in)
        : ring_(ring), targets_{length, n, powers}, burn_in_(burn_in) {}

    int64_t positions() const { return targets_.length + targets_.n; }

    // Fetches the marks that the sequence at a drawable slot is found by.
    void fetch(int64_t slot) const {
        int64_t lane_slot, number;
        ring_.split(slot, lane_slot, number);
        const Position now = ring_.position(number);
        int64_t memory = ring_.wrapped(ring_.memory_of(now, ring_.row_at(now, lane_slot)) + ring_.depth - burn_in_);
        for (int64_t left = positions(); left > 0;) {
            const int64_t n = std::min(left, ring_.together(memory));
            const uint8_t* const marks = ring_.marks + ring_.storage_row(number, memory);
            for (int64_t i = 0; i < n; i += 64) RELIVE_PREFETCH(marks + i);
            memory = ring_.wrapped(memory + n);
            left -= n;
        }
    }

    // What is around the steps of the sequence at a drawable slot, but for what is behind them; the memory and storage
    // row of the first one, and the lane's position.
    RELIVE_INLINE Around around(int64_t slot, int64_t& memory, int64_t& at, Position& now) const {
        Around found;
        int64_t lane_slot;
        ring_.split(slot, lane_slot, found.number);
        now = ring_.position(found.number);
        found.row = ring_.row_at(now, lane_slot);
        memory = ring_.memory_of(now, found.row), at = ring_.storage_row(found.number, memory);
        const int64_t steps = ring_.preceding(at, burn_in_);
        memory -= steps - (steps > memory ? ring_.depth : 0);
        found.lead = burn_in_ - steps;
        found.first = !ring_.preceded(at);
        found.before = found.first ? ring_.zero_row() : ring_.previous_row(at);
        return found;
    }

    // The sequence whose burn-in is in front of a drawable slot, up to its first end.
    Stretch stretch(int64_t slot) const {
        int64_t memory, at;
        Position now;
        Stretch found;
        static_cast<Around&>(found) = around(slot, memory, at, now);
        const int64_t most = std::min(positions() - found.lead, known(memory, now.memory));
        found.run = run_from(found.number, memory, most, burn_in_ - found.lead);
        found.behind = found.run.after;
        return found;
    }

    // The sequence that starts at a drawable slot.
    void find(int64_t slot, Stretch& out) const { out = stretch(slot); }
    void find(int64_t slot, Sequence& out) const {
        const Stretch first = stretch(slot);
        static_cast<Around&>(out) = first;
        out.runs.assign(1, first.run);
        out.steps = first.run.count;
        const int64_t depth = ring_.depth, end = ring_.position(out.number).memory;
        while (true) {
            const Run run = out.runs.back();
            if (out.steps == positions() || run.mark & CUT || !(run.mark & END) || !ring_.across) return;
            int64_t memory = ring_.wrapped(run.memory + run.count);
            while (memory != end && !(ring_.mark_at(ring_.storage_row(out.number, memory)) & STEP))
                memory = memory + 1 == depth ? 0 : memory + 1;
            out.behind = ring_.storage_row(out.number, end);
            if (memory == end) return;
            out.runs.push_back(run_from(out.number, memory, std::min(positions() - out.steps, known(memory, end))));
            out.steps += out.runs.back().count;
            out.behind = out.runs.back().after;
        }
    }

    // Calls `body` with the storage row and the number of every strip of a sequence's rows that lie together.
    template <typename Found, typename Body>
    static void strips(const Rows& ring, const Found& sequence, Body body) {
        for (const Run& run : runs_of(sequence))
            for (int64_t done = 0; done < run.count;) {
                const int64_t memory = ring.wrapped(run.memory + done);
                const int64_t n = std::min(run.count - done, ring.together(memory));
                body(ring.storage_row(sequence.number, memory), n);
                done += n;
            }
    }

    // What is known of the windows at each position.
    void windows(const Sequence& sequence, const Unrolled& out) const {
        int64_t position = sequence.lead;
        targets_.open(position, position + sequence.steps, out);
        for (const Run& run : runs_of(sequence)) {
            targets_.close(run.mark, position, position + run.count, out);
            position += run.count;
        }
    }

    // Across episodes: calls `apart(position, row)` for windows whose successor is not the observation n positions on,
    // but at that storage row, and `begins(position)` where an episode begins behind an end.
    template <typename Apart, typename Begins>
    void joints(const Sequence& sequence, Apart apart, Begins begins) const {
        int64_t position = sequence.lead;
        for (const Run& run : runs_of(sequence)) {
            const int64_t end = position + run.count;
            for (int64_t i = std::max(position, end - targets_.n); run.mark & END && i < std::min(end, targets_.length);
                 ++i)
                if (run.after != observed(sequence, i + targets_.n)) apart(i, run.after);
            if (run.mark & END && !(run.mark & CUT) && end < positions()) begins(end);
            position = end;
        }
    }

    // The storage rows of the observations, and of the steps before them.
    void list(const Sequence& sequence, int64_t* observed, int64_t* before) const {
        int64_t i = sequence.lead;
        std::fill_n(observed, i, ring_.storage_row(sequence.number, sequence.runs[0].memory));
        std::fill_n(before, i, ring_.zero_row());
        for (const Run& run : sequence.runs)
            for (int64_t k = 0, row = ring_.storage_row(sequence.number, run.memory); k < run.count; ++k) {
                observed[i++] = row;
                row = ring_.next_row(row);
            }
        std::fill(observed + i, observed + positions(), sequence.behind);
        before[sequence.lead] = sequence.before;
        const int64_t known = std::min(sequence.lead + sequence.steps + 1, positions());
        std::copy(observed + sequence.lead, observed + known - 1, before + sequence.lead + 1);
        std::fill(before + known, before + positions(), ring_.zero_row());
    }

protected:
    const Rows& ring_;
    Targets targets_;
    int64_t burn_in_;  // steps in front of a slot's own, within its episode

private:
    // How many rows there are from one on, up to where the lane's next row goes.
    int64_t known(int64_t memory, int64_t end) const {
        return end > memory ? end - memory : end - memory + ring_.depth;
    }
    // The storage row of the observation at a position.
    int64_t observed(const Sequence& sequence, int64_t position) const {
        for (const Run& run : runs_of(sequence)) {
            if (position < run.count) return ring_.storage_row(sequence.number, ring_.wrapped(run.memory + position));
            position -= run.count;
        }
        return sequence.behind;
    }

    // Up to `most` steps, up to and with the first that is an end; none of the first `count` is one.
    Run run_from(int64_t number, int64_t memory, int64_t most, int64_t count = 0) const {
        int64_t row = 0;
        for (int64_t at = ring_.wrapped(memory + count); count < most; at = at == ring_.depth ? 0 : at) {
            const int64_t n = std::min(most - count, ring_.together(at));
            const int64_t found = Rows::steps_to_end(ring_.marks + ring_.storage_row(number, at), n);
            row = ring_.storage_row(number, at + found - 1);
            count += found;
            at += found;
            if (ring_.mark_at(row) & END) break;
        }
        const uint8_t mark = ring_.mark_at(row);
        return {memory, count, mark & END ? ring_.successor_of(row) : ring_.next_row(row), mark};
    }
};

}  // namespace relive
