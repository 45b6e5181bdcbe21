// Sequences of steps, as runs of rows. Knows bytes and integers, no Python object.
// `_ring/kernels_numpy/rows.py` states the same rules, a step at a time, and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "rows.hpp"

namespace relive {

// Successive steps of a lane, from a position in its memory on; the last one is at the storage row `last`.
struct Run {
    int64_t memory, count, last;
    uint8_t mark;
};

// A sequence's lane, the row before its steps (of zeros where there is none), the row that stands at all positions
// behind them, and how many positions are in front: there is no step, and the first one's observation.
struct Around {
    int64_t number = 0, before = 0, behind = 0, lead = 0;
    bool first = false;  // its first step begins an episode, or a stream
};

// One sequence up to the first end, which is all of it but across episodes; `row` of its lane is its anchor.
struct Stretch : Around {
    Run run;
    int64_t row;
};

// One sequence.
struct Sequence : Around {
    std::vector<Run> runs;
    int64_t steps = 0;

    // The storage row of the observation at a position.
    int64_t at(const Rows& ring, int64_t position) const {
        for (const Run& run : runs) {
            if (position < run.count) return ring.storage_row(number, (run.memory + position) % ring.depth);
            position -= run.count;
        }
        return behind;
    }
};

inline std::span<const Run> runs_of(const Stretch& stretch) { return {&stretch.run, 1}; }
inline std::span<const Run> runs_of(const Sequence& sequence) { return sequence.runs; }

// Where what is known of the sequences of one draw is written down: of item `b`, entries from `b * length` on; null: it
// is not asked for.
struct Unrolled {
    int32_t* steps = nullptr;
    float* discount = nullptr;
    uint8_t *terminated = nullptr, *truncated = nullptr, *mask = nullptr;
    // Across episodes, as positions in the order of all items: windows whose successor is not the observation n
    // positions on, the storage rows of these successors, and where episodes begin behind an end.
    std::vector<int64_t> apart, successors, begins;
};

// Windows of at most `n` steps at each of the first `length` positions of sequences. Needs nothing of a ring.
struct Targets {
    int64_t length, n;
    const float* powers;

    // Of item `b`, which has steps at the positions from `lead` on, before `end`, as if it had no end.
    void open(int64_t lead, int64_t end, int64_t b, const Unrolled& out) const {
        const int64_t stop = std::min(end, length), start = std::min(lead, stop);
        const auto fill = [&](auto* to, auto inside) {
            if (!to) return;
            to += b * length;
            std::fill(to, to + start, decltype(inside)(0));
            std::fill(to + start, to + stop, inside);
            std::fill(to + stop, to + length, decltype(inside)(0));
        };
        fill(out.mask, uint8_t(1));
        fill(out.steps, int32_t(n));
        fill(out.discount, powers[n]);
        fill(out.terminated, uint8_t(0));
        fill(out.truncated, uint8_t(0));
    }
    // Its windows that reach an end, which the step before the position `end` has; `begin`: where its run begins.
    template <typename Each>
    void close(uint8_t mark, int64_t begin, int64_t end, int64_t b, const Unrolled& out, Each each) const {
        for (int64_t i = std::max(begin, end - n); mark & END && i < std::min(end, length); ++i) {
            const int64_t k = b * length + i;
            if (out.steps) out.steps[k] = int32_t(end - i);
            if (out.discount) out.discount[k] = mark & (TERMINATED | LOST) ? 0.0f : powers[end - i];
            if (out.terminated) out.terminated[k] = (mark & TERMINATED) != 0;
            if (out.truncated) out.truncated[k] = (mark & TRUNCATED) != 0;
            each(i, k);
        }
    }
    void close(uint8_t mark, int64_t begin, int64_t end, int64_t b, const Unrolled& out) const {
        close(mark, begin, end, b, out, [](int64_t, int64_t) {});
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
        int64_t memory = (ring_.memory_of(now, ring_.row_at(now, lane_slot)) + ring_.depth - burn_in_) % ring_.depth;
        for (int64_t left = positions(); left > 0;) {
            const int64_t n = std::min(left, ring_.together(memory));
            const uint8_t* const marks = ring_.marks + ring_.storage_row(number, memory);
            for (int64_t i = 0; i < n; i += 64) RELIVE_PREFETCH(marks + i);
            memory = (memory + n) % ring_.depth;
            left -= n;
        }
    }

    // The sequence whose burn-in is in front of a drawable slot, up to its first end.
    Stretch stretch(int64_t slot) const {
        Stretch found;
        int64_t lane_slot;
        ring_.split(slot, lane_slot, found.number);
        const Position now = ring_.position(found.number);
        found.row = ring_.row_at(now, lane_slot);
        int64_t memory = ring_.memory_of(now, found.row), at = ring_.storage_row(found.number, memory);
        found.lead = burn_in_;
        found.first = !ring_.preceded(at);
        for (; found.lead && !found.first; --found.lead) {
            at = ring_.previous_row(at);
            memory = (memory ? memory : ring_.depth) - 1;
            found.first = !ring_.preceded(at);
        }
        found.before = found.first ? ring_.zero_row() : ring_.previous_row(at);
        found.run = run_from(found.number, memory, std::min(positions() - found.lead, known(memory, now.memory)));
        found.behind = behind(found.run);
        return found;
    }

    // The sequence that starts at a drawable slot.
    void find(int64_t slot, Sequence& out) const {
        const Stretch first = stretch(slot);
        static_cast<Around&>(out) = first;
        out.runs.assign(1, first.run);
        out.steps = first.run.count;
        const int64_t depth = ring_.depth, end = ring_.position(out.number).memory;
        while (true) {
            const Run run = out.runs.back();
            if (out.steps == positions() || run.mark & CUT || !(run.mark & END) || !ring_.across) return;
            int64_t memory = (run.memory + run.count) % depth;
            while (memory != end && !(ring_.mark_at(ring_.storage_row(out.number, memory)) & STEP))
                memory = memory + 1 == depth ? 0 : memory + 1;
            out.behind = ring_.storage_row(out.number, end);
            if (memory == end) return;
            out.runs.push_back(run_from(out.number, memory, std::min(positions() - out.steps, known(memory, end))));
            out.steps += out.runs.back().count;
            out.behind = behind(out.runs.back());
        }
    }

    // Calls `body` with the storage row and the number of every strip of a sequence's rows that lie together.
    template <typename Found, typename Body>
    static void strips(const Rows& ring, const Found& sequence, Body body) {
        for (const Run& run : runs_of(sequence))
            for (int64_t done = 0; done < run.count;) {
                const int64_t memory = (run.memory + done) % ring.depth;
                const int64_t n = std::min(run.count - done, ring.together(memory));
                body(ring.storage_row(sequence.number, memory), n);
                done += n;
            }
    }

    // What is known of the windows at each position of item `b`.
    void windows(const Sequence& sequence, int64_t b, Unrolled& out) const {
        int64_t position = sequence.lead;
        targets_.open(position, position + sequence.steps, b, out);
        for (const Run& run : sequence.runs) {
            const int64_t end = position + run.count;
            targets_.close(run.mark, position, end, b, out, [&](int64_t i, int64_t k) {
                if (ring_.across) separate(sequence, run, i, k, out);
            });
            if (ring_.across && run.mark & END && !(run.mark & CUT) && end < positions())
                out.begins.push_back(b * positions() + end);
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

private:
    const Rows& ring_;
    Targets targets_;
    int64_t burn_in_;  // steps in front of a slot's own, within its episode

    // How many rows there are from one on, up to where the lane's next row goes.
    int64_t known(int64_t memory, int64_t end) const {
        return end > memory ? end - memory : end - memory + ring_.depth;
    }
    int64_t behind(const Run& run) const {
        return run.mark & END ? ring_.successor_of(run.last) : ring_.next_row(run.last);
    }

    // Up to `most` steps, up to and with the first that is an end.
    Run run_from(int64_t number, int64_t memory, int64_t most) const {
        int64_t count = 0, row = 0;
        for (int64_t at = memory; count < most; at = at == ring_.depth ? 0 : at) {
            const int64_t n = std::min(most - count, ring_.together(at));
            const int64_t found = Rows::steps_to_end(ring_.marks + ring_.storage_row(number, at), n);
            row = ring_.storage_row(number, at + found - 1);
            count += found;
            at += found;
            if (ring_.mark_at(row) & END) break;
        }
        return {memory, count, row, ring_.mark_at(row)};
    }

    // Note the successor of a window at position `i`, entry `k`, that ends with its run.
    void separate(const Sequence& sequence, const Run& run, int64_t i, int64_t k, Unrolled& out) const {
        const int64_t successor = ring_.successor_of(run.last);
        if (successor == sequence.at(ring_, i + targets_.n)) return;
        out.apart.push_back(k);
        out.successors.push_back(successor);
    }
};

}  // namespace relive
