// What the marks of rows around a row say of its stream. Knows bytes and integers, no Python object.
// `_ring/kernels_numpy/rows.py` states the same rules in readable form.
#pragma once

#include <algorithm>
#include <bit>

#include "copy.hpp"
#include "places.hpp"

namespace relive {

// One window: storage rows of its anchor, its last step and its successor, its steps and the mark of its last one.
struct Window {
    int64_t at, last, after;
    int32_t steps;
    uint8_t mark;

    // Whether its rows lie one after the other.
    bool together() const { return last - at == steps - 1; }
};

// Where the windows of one draw are written down.
struct Windows {
    int64_t *ids, *at, *after;
    int32_t* steps;
    float* discount;
    uint8_t *terminated, *truncated;
};

class Marks : public Places {
public:
    uint8_t* marks = nullptr;

    uint8_t mark_at(int64_t storage_row) const { return peek(marks[storage_row]); }

    // The storage row of the observation after the step at a storage row; its own where none was given.
    RELIVE_INLINE int64_t successor_of(int64_t row) const {
        const uint8_t mark = mark_at(row);
        if (mark & LOST) return row;
        int64_t after = next_row(row);
        // A final observation may have brought older frames of its own.
        for (int64_t i = 0; i < lookback && mark & END && mark_at(after) & HISTORY; ++i) after = next_row(after);
        return after;
    }

    bool preceded(int64_t row) const { return !(mark_at(row) & FIRST) && mark_at(previous_row(row)) & STEP; }

    // How many steps of its stream, `most` at most, lie before the one at a storage row, which becomes that of the
    // first.
    int64_t preceding(int64_t& row, int64_t most) const {
        int64_t left = most;
        while (left > 0) {
            const int64_t near = lanes == 1 ? row : row & (block() - 1);  // rows before it that lie together
            if (near < 8 || left < 8) {
                if (!preceded(row)) break;
                row = previous_row(row);
                --left;
                continue;
            }
            // Of each of the last eight rows: a stream begins with it, or no step is before it.
            const uint64_t begins = (eight_marks(marks + row - 7) & EACH * FIRST) / FIRST;
            const uint64_t stops = begins | (~eight_marks(marks + row - 8) & EACH * STEP);
            const int64_t steps = std::countl_zero(stops) / 8;
            if (stops) {  // seldom, and so foreseen: the next marks are looked at meanwhile
                row -= steps;
                left -= steps;
                break;
            }
            row -= 8;
            left -= 8;
        }
        return most - left;
    }

    // How many of the steps marked by `n` successive bytes there are up to and with the first that is an end.
    static int64_t steps_to_end(const uint8_t* mark, int64_t n) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            if (const uint64_t ends = eight_marks(mark + i) & ENDS) return i + first_of(ends);
        if (n < 8) {
            while (i < n && !(peek(mark[i]) & END)) ++i;
            return std::min(i + 1, n);
        }
        const uint64_t ends = eight_marks(mark + n - 8) & ENDS;  // of which those before `i` are known to be none
        return ends ? n - 8 + first_of(ends) : n;
    }

    // Whether the next eight marks have, of some bits, these.
    static bool eight_are(const uint8_t* mark, uint64_t these, uint64_t of) {
        return (eight_marks(mark) & EACH * of) == EACH * these;
    }

    // The window of at most n steps from a storage row on.
    RELIVE_INLINE Window window(int64_t row, int64_t n) const {
        Window found = plain_window(row, n, next().together(row), marks, next());
        found.after = successor_of(found.last);
        return found;
    }

protected:
    static constexpr uint64_t EACH = 0x0101010101010101u, ENDS = EACH * END;
    static uint64_t eight_marks(const uint8_t* mark) {
        uint64_t word;
        copy_bytes(reinterpret_cast<char*>(&word), reinterpret_cast<const char*>(mark), 8);
        return word;
    }
    // The number of the first byte, counted from 1, that is not 0.
    static int64_t first_of(uint64_t bytes) { return std::countr_zero(bytes) / 8 + 1; }

    // A window where no older frames lie between a step and its successor, by values that stay in registers; `near`
    // rows lie together from its first one on.
    static RELIVE_INLINE Window plain_window(int64_t row, int64_t n, int64_t near, const uint8_t* mark_of, Next next) {
        int64_t last = row, steps = 1;
        if (n <= 8 && near >= 8) {  // without a branch that ends could take
            steps = first_of((eight_marks(mark_of + row) & ENDS) | uint64_t(END) << (8 * (n - 1)));
            last = row + steps - 1;
        } else if (near >= n) {
            steps = steps_to_end(mark_of + row, n);
            last = row + steps - 1;
        } else {
            for (; steps < n && !(peek(mark_of[last]) & END); ++steps) last = next(last);
        }
        const uint8_t mark = peek(mark_of[last]);
        return {row, last, mark & LOST ? last : next(last), int32_t(steps), mark};
    }
};

}  // namespace relive
