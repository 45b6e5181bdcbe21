// Sequences of steps, as runs of rows. Knows bytes and integers, no Python object.
// `_ring/kernels_numpy/rows.py` states the same rules, a step at a time, and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "rows.hpp"

namespace relive {

// Successive steps of a lane, from a position in its memory on; the last one is at the storage row `last`.
struct Run {
    int64_t memory, count, last;
    uint8_t mark;
};

// One sequence: its steps, the row before them (of zeros where there is none), and the row that stands at all positions
// behind them.
struct Sequence {
    std::vector<Run> runs;
    int64_t number = 0, before = 0, behind = 0, steps = 0;  // `number`: of the lane

    // The storage row of the observation at a position.
    int64_t at(const Rows& ring, int64_t position) const {
        for (const Run& run : runs) {
            if (position < run.count) return ring.storage_row(number, (run.memory + position) % ring.depth);
            position -= run.count;
        }
        return behind;
    }
};

// Where what is known of the sequences of one draw is written down: of item `b`, entries from `b * length` on.
struct Unrolled {
    int32_t* steps;
    float* discount;
    uint8_t *terminated, *truncated, *mask;
    // Across episodes, as positions in the order of all items: windows whose successor is not the observation n
    // positions on, the storage rows of these successors, and where episodes begin behind an end.
    std::vector<int64_t> apart, successors, begins;
};

class Sequences {
public:
    Sequences(const Rows& ring, int64_t length, int64_t n, const float* powers)
        : ring_(ring), length_(length), n_(n), powers_(powers) {}

    int64_t positions() const { return length_ + n_; }

    // The sequence that starts at a drawable slot.
    void find(int64_t slot, Sequence& out) const {
        int64_t lane_slot;
        ring_.split(slot, lane_slot, out.number);
        const Position now = ring_.position(out.number);
        const int64_t depth = ring_.depth, end = now.memory;
        int64_t memory = ring_.memory_of(now, ring_.row_at(now, lane_slot));
        const int64_t at = ring_.storage_row(out.number, memory);
        out.runs.clear();
        out.steps = 0;
        out.before = ring_.preceded(at) ? ring_.previous_row(at) : ring_.zero_row();
        while (true) {
            const int64_t known = end > memory ? end - memory : end - memory + depth;
            const Run run = run_from(out.number, memory, std::min(positions() - out.steps, known));
            out.runs.push_back(run);
            out.steps += run.count;
            out.behind = run.mark & END ? ring_.successor_of(run.last) : ring_.next_row(run.last);
            if (out.steps == positions() || run.mark & CUT || !(run.mark & END) || !ring_.across) return;
            memory = (memory + run.count) % depth;
            while (memory != end && !(ring_.mark_at(ring_.storage_row(out.number, memory)) & STEP))
                memory = memory + 1 == depth ? 0 : memory + 1;
            out.behind = ring_.storage_row(out.number, end);
            if (memory == end) return;
        }
    }

    // Calls `body` with the storage row and the number of every strip of a sequence's rows that lie together.
    template <typename Body>
    void strips(const Sequence& sequence, Body body) const {
        for (const Run& run : sequence.runs)
            for (int64_t done = 0; done < run.count;) {
                const int64_t memory = (run.memory + done) % ring_.depth;
                const int64_t n = std::min(run.count - done, ring_.together(memory));
                body(ring_.storage_row(sequence.number, memory), n);
                done += n;
            }
    }

    // What is known of the windows at each position of item `b`.
    void windows(const Sequence& sequence, int64_t b, Unrolled& out) const {
        const int64_t k = b * length_, exist = std::min(sequence.steps, length_);
        std::fill_n(out.mask + k, exist, uint8_t(1));
        std::fill_n(out.mask + k + exist, length_ - exist, uint8_t(0));
        std::fill_n(out.steps + k, exist, int32_t(n_));
        std::fill_n(out.steps + k + exist, length_ - exist, int32_t(0));
        std::fill_n(out.discount + k, exist, powers_[n_]);
        std::fill_n(out.discount + k + exist, length_ - exist, 0.0f);
        std::fill_n(out.terminated + k, length_, uint8_t(0));
        std::fill_n(out.truncated + k, length_, uint8_t(0));
        int64_t position = 0;
        for (const Run& run : sequence.runs) {
            const int64_t end = position + run.count;
            for (int64_t i = std::max(position, end - n_); run.mark & END && i < std::min(end, length_); ++i) {
                out.steps[k + i] = int32_t(end - i);
                out.discount[k + i] = run.mark & (TERMINATED | LOST) ? 0.0f : powers_[end - i];
                out.terminated[k + i] = (run.mark & TERMINATED) != 0;
                out.truncated[k + i] = (run.mark & TRUNCATED) != 0;
                if (ring_.across) separate(sequence, run, i, k + i, out);
            }
            if (ring_.across && run.mark & END && !(run.mark & CUT) && end < positions())
                out.begins.push_back(b * positions() + end);
            position = end;
        }
    }

    // The storage rows of the observations, and of the steps before them.
    void list(const Sequence& sequence, int64_t* observed, int64_t* before) const {
        int64_t i = 0;
        for (const Run& run : sequence.runs)
            for (int64_t k = 0, row = ring_.storage_row(sequence.number, run.memory); k < run.count; ++k) {
                observed[i++] = row;
                row = ring_.next_row(row);
            }
        std::fill(observed + i, observed + positions(), sequence.behind);
        before[0] = sequence.before;
        const int64_t known = std::min(sequence.steps + 1, positions());
        std::copy_n(observed, known - 1, before + 1);
        std::fill(before + known, before + positions(), ring_.zero_row());
    }

private:
    const Rows& ring_;
    int64_t length_, n_;
    const float* powers_;

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
        if (successor == sequence.at(ring_, i + n_)) return;
        out.apart.push_back(k);
        out.successors.push_back(successor);
    }
};

}  // namespace relive
