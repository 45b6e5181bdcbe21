// Sequences of steps, as runs of rows. Knows bytes and integers, no Python object.
// `_kernels_numpy/rows.py` states the same rules, a step at a time, and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "rows.hpp"

namespace relive {

// Successive steps of a lane, from a storage row on; the last of them has the mark `mark`.
struct Run {
    int64_t row, count, last;
    uint8_t mark;
};

// One sequence: its steps, the row before them (of zeros where there is none), and the row that stands at all positions
// behind them.
struct Sequence {
    std::vector<Run> runs;
    int64_t before = 0, behind = 0, steps = 0;

    // The storage row of the observation at a position.
    int64_t at(const Rows& ring, int64_t position) const {
        for (const Run& run : runs) {
            if (position < run.count) return ring.advanced(run.row, position);
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
        int64_t place, number;
        ring_.split(slot, place, number);
        const Position now = ring_.position(number);
        int64_t at = ring_.storage_row(number, ring_.memory_of(now, ring_.row_at(now, place)));
        const int64_t end = ring_.storage_row(number, now.memory);
        out.runs.clear();
        out.steps = 0;
        out.before = ring_.preceded(at) ? ring_.previous_row(at) : ring_.zero_row();
        while (true) {
            const Run run = run_from(at, std::min(positions() - out.steps, ring_.distance(at, end)));
            out.runs.push_back(run);
            out.steps += run.count;
            out.behind = run.mark & END ? ring_.successor_of(run.last) : ring_.next_row(run.last);
            if (out.steps == positions() || run.mark & CUT || !(run.mark & END) || !ring_.across) return;
            at = ring_.next_row(run.last);
            while (at != end && !(ring_.marks[at] & STEP)) at = ring_.next_row(at);
            out.behind = end;
            if (at == end) return;
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
            for (int64_t k = 0, row = run.row; k < run.count; ++k, row = ring_.next_row(row)) observed[i++] = row;
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

    // Up to `most` steps from a row on, up to and with the first that is an end.
    Run run_from(int64_t row, int64_t most) const {
        const int64_t straight = std::min(most, ring_.rows_to_wrap(row));
        int64_t count = steps_to_end(row, straight);
        if (count == straight && count < most && !(ring_.marks[ring_.advanced(row, count - 1)] & END))
            count += steps_to_end(ring_.advanced(row, count), most - straight);
        const int64_t last = ring_.advanced(row, count - 1);
        return {row, count, last, ring_.marks[last]};
    }

    // How many of the n steps from a storage row on, which lie in one stretch of memory, there are up to and with the
    // first that is an end.
    int64_t steps_to_end(int64_t row, int64_t n) const {
        constexpr uint64_t ENDS = 0x0101010101010101u * END;
        const uint8_t* mark = ring_.marks + row;
        const int64_t lanes = ring_.lanes;
        int64_t i = 0;
        for (; lanes == 1 && i + 8 <= n; i += 8) {
            uint64_t word;
            std::memcpy(&word, mark + i, 8);
            if (word & ENDS) break;
        }
        while (i < n && !(mark[i * lanes] & END)) ++i;
        return std::min(i + 1, n);
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
