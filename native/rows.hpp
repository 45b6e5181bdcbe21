// Lanes of rows and what can be read off them. Knows bytes and integers, no Python object.
// `_kernels_numpy/rows.py` states the same rules in readable form and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "copy.hpp"

namespace relive {

// Without STEP a row is an observation that only serves others: as a successor, or, with HISTORY, as an older frame.
enum Mark : uint8_t {
    STEP = 1,
    TERMINATED = 2,
    TRUNCATED = 4,
    CUT = 8,
    LOST = 16,
    FIRST = 32,
    HISTORY = 64,
    START = 128,
    END = TERMINATED | TRUNCATED | CUT,
    ANCHOR = STEP | START
};

// One lane's counters, as they lie in the array `counters[L, 8]`: one cache line.
struct Lane {
    int64_t head;        // rows ever written
    int64_t cursor;      // the slot the next row goes to
    int64_t ripe;        // the first row that is not known to be drawable yet
    int64_t held;        // whether a successor is held for the newest step
    int64_t steps;       // steps ever added
    int64_t ripe_steps;  // steps before the row `ripe`, where items run across episodes
    int64_t floor;       // the first row whose own older rows, as far as an item needs them, are all stored
    int64_t unused;
};

struct Tallies {
    int64_t added, cuts, unbootstrapped, stored, drawable;
};

struct Column {
    char* data;           // L * R rows of the rings, lane after lane, one held successor per lane, one row of zeros
    size_t row;           // bytes of one row
    size_t stride;        // from one row to the next; more than `row` where fields share a record
    int64_t frames = 1;   // that a given value has, oldest first; the newest is stored
    bool repeat = false;  // the first frame stands before itself, not zeros
    int64_t every = 0;    // kept at every so many steps, in `slots` rows a lane of its own; 0: at each
    int64_t slots = 0;

    size_t given() const { return row * size_t(frames); }
    const char* newest(const char* value) const { return value + row * size_t(frames - 1); }
};

// Where the sequences of one draw are written down: position `i` of item `b` at `b * count + i`, or of its `length`.
struct Sequence {
    int64_t *observed, *before;
    int32_t* steps;
    float* discount;
    uint8_t *terminated, *truncated, *mask;
    int64_t* after;  // these two only across episodes
    uint8_t* first;
};

class Rows {
public:
    std::vector<Column> columns;
    size_t num_obs = 0;
    uint8_t* marks = nullptr;
    Lane* lanes = nullptr;
    Tallies* tallies = nullptr;
    int64_t num_lanes = 0, rows = 0, reach = 0, history = 0, starts = 1;
    bool across = false;

    int64_t id_at(int64_t place) const {
        int64_t slot, number;
        split(place, slot, number);
        int64_t behind = lanes[number].cursor - 1 - slot;
        if (behind < 0) behind += rows;
        return (lanes[number].head - 1 - behind) * num_lanes + number;
    }

    // 0 can be drawn, 1 overwritten, 2 not complete yet, 3 never issued, 4 no start; `place` is set for 0 only.
    uint8_t locate(int64_t id, int64_t& place) const {
        place = 0;
        if (id < 0) return 3;
        int64_t row, number;
        split(id, row, number);
        const Lane& lane = lanes[number];
        if (row >= lane.head) return 3;
        if (row < lane.floor) return 1;
        const int64_t slot = slot_of(lane, row);
        const uint8_t mark = marks[number * rows + slot];
        if (!(mark & STEP)) return 3;
        if (!(mark & START)) return 4;
        if (row >= lane.ripe) return 2;
        place = slot * num_lanes + number;
        return 0;
    }

    // Whether a stream begins in one of the last `count` rows up to `place`.
    bool begins_since(int64_t place, int64_t count) const {
        int64_t slot, number;
        split(place, slot, number);
        for (int64_t i = 0; i < std::min(count, rows); ++i) {
            if (marks[number * rows + slot] & FIRST) return true;
            slot = (slot ? slot : rows) - 1;
        }
        return false;
    }

    // One window of at most n steps from `place` on: storage rows of the anchor and of the successor, its length and
    // last mark.
    uint8_t window(int64_t place, int64_t n, int64_t& at, int64_t& after, int32_t& steps) const {
        int64_t slot, number;
        split(place, slot, number);
        const uint8_t* lane_marks = marks + number * rows;
        int64_t last = slot;
        int32_t m = 1;
        while (m < n && !(lane_marks[last] & END)) {
            if (++last == rows) last = 0;
            ++m;
        }
        at = number * rows + slot;
        after = successor_of(number, last);
        steps = m;
        return lane_marks[last];
    }

    // The storage rows of as many frames, oldest first, of which the last stands at the storage row `newest`.
    void stack(int64_t newest, int64_t frames, bool repeat, int64_t* out) const {
        int64_t number = newest - num_lanes * rows, slot;
        bool begun = false;
        if (number >= 0) {
            slot = lanes[number].cursor;
        } else {
            number = newest / rows;
            slot = newest % rows;
            begun = marks[newest] & FIRST;
        }
        int64_t row = newest;
        out[frames - 1] = newest;
        for (int64_t i = frames - 2; i >= 0; --i) {
            if (begun) {
                out[i] = repeat ? row : nothing();
                continue;
            }
            slot = (slot ? slot : rows) - 1;
            out[i] = row = number * rows + slot;
            begun = marks[row] & FIRST;
        }
    }

    // The sequence of `length` steps from `place` on, with windows of n at each: item b of `out`. `scratch` has room
    // for length + n marks, `successors` for as many rows.
    void sequence(int64_t place, int64_t length, int64_t n, const float* powers, int64_t b, const Sequence& out,
                  uint8_t* scratch, int64_t* successors) const {
        int64_t slot, number;
        split(place, slot, number);
        if (across)
            sequence_across(number, slot, length, n, powers, b, out, scratch, successors);
        else
            sequence_within(number, slot, length, n, powers, b, out);
    }

    void prefetch_mark_of(int64_t id) const {
        int64_t row, number;
        split(id, row, number);
        const int64_t behind = lanes[number].head - row;  // in range for all ids but stale and invented ones
        const int64_t slot = lanes[number].cursor - behind;
        if (behind > 0 && behind <= rows) RELIVE_PREFETCH(marks + number * rows + (slot < 0 ? slot + rows : slot));
    }

    void prefetch_mark(int64_t place) const {
        int64_t slot, number;
        split(place, slot, number);
        RELIVE_PREFETCH(marks + number * rows + slot);
    }

    void split(int64_t value, int64_t& quotient, int64_t& lane) const {
        if (num_lanes == 1) {
            quotient = value;
            lane = 0;
        } else if (uint64_t(value) <= UINT32_MAX) {  // a third of the time of a 64-bit division
            quotient = uint32_t(value) / uint32_t(num_lanes);
            lane = uint32_t(value) % uint32_t(num_lanes);
        } else {
            quotient = value / num_lanes;
            lane = value % num_lanes;
        }
    }

protected:
    int64_t nothing() const { return num_lanes * (rows + 1); }

    int64_t slot_of(const Lane& lane, int64_t row) const {
        const int64_t slot = lane.cursor - (lane.head - row);
        return slot < 0 ? slot + rows : slot;
    }

    int64_t newest_slot(const Lane& lane) const { return (lane.cursor ? lane.cursor : rows) - 1; }

    // The storage row of the observation after the step at `slot`; its own where none was given.
    int64_t successor_of(int64_t number, int64_t slot) const {
        const uint8_t* lane_marks = marks + number * rows;
        const uint8_t mark = lane_marks[slot];
        if (mark & LOST) return number * rows + slot;
        int64_t after = slot + 1 == rows ? 0 : slot + 1;
        // The row after the newest is the held successor; the oldest row, in the same slot, can be no successor.
        if (after == lanes[number].cursor) return num_lanes * rows + number;
        // A final observation may have brought older frames of its own.
        for (int64_t i = 0; mark & END && i < history && lane_marks[after] & HISTORY; ++i)
            if (++after == rows) after = 0;
        return number * rows + after;
    }

    bool preceded(const uint8_t* lane_marks, int64_t slot) const {
        return !(lane_marks[slot] & FIRST) && lane_marks[(slot ? slot : rows) - 1] & STEP;
    }

    // Of one episode: its steps stand in successive slots, up to an end or the newest.
    void sequence_within(int64_t number, int64_t slot, int64_t length, int64_t n, const float* powers, int64_t b,
                         const Sequence& out) const {
        const int64_t base = number * rows, count = length + n, cursor = lanes[number].cursor;
        const uint8_t* lane_marks = marks + base;
        const int64_t most = std::min(count, cursor > slot ? cursor - slot : cursor - slot + rows);
        const int64_t straight = std::min(most, rows - slot);
        int64_t steps = steps_to_end(lane_marks + slot, straight);
        if (steps == straight && !(lane_marks[slot + steps - 1] & END))
            steps += steps_to_end(lane_marks, most - straight);
        const int64_t last = slot + steps - 1 < rows ? slot + steps - 1 : slot + steps - 1 - rows;
        const uint8_t mark = lane_marks[last];
        const bool ended = mark & END;

        int64_t* observed = out.observed + b * count;
        int64_t* before = out.before + b * count;
        const int64_t first = std::min(steps, rows - slot);
        for (int64_t i = 0; i < first; ++i) observed[i] = base + slot + i;
        for (int64_t i = first; i < steps; ++i) observed[i] = base + i - first;
        const int64_t after = ended ? successor_of(number, last) : num_lanes * rows + number;
        for (int64_t i = steps; i < count; ++i) observed[i] = after;
        before[0] = preceded(lane_marks, slot) ? base + (slot ? slot : rows) - 1 : nothing();
        const int64_t known = std::min(steps + 1, count);
        for (int64_t i = 1; i < known; ++i) before[i] = observed[i - 1];
        for (int64_t i = known; i < count; ++i) before[i] = nothing();

        const int64_t exist = std::min(steps, length), k = b * length;
        const int64_t whole = ended ? std::clamp<int64_t>(steps - n, 0, length) : exist;  // windows before the end's
        std::fill_n(out.mask + k, exist, uint8_t(1));
        std::fill_n(out.mask + k + exist, length - exist, uint8_t(0));
        std::fill_n(out.steps + k, whole, int32_t(n));
        std::fill_n(out.discount + k, whole, powers[n]);
        std::fill_n(out.terminated + k, length, uint8_t(0));
        std::fill_n(out.truncated + k, length, uint8_t(0));
        for (int64_t i = whole; i < exist; ++i) {
            out.steps[k + i] = int32_t(steps - i);
            out.discount[k + i] = mark & (TERMINATED | LOST) ? 0.0f : powers[steps - i];
            out.terminated[k + i] = (mark & TERMINATED) != 0;
            out.truncated[k + i] = (mark & TRUNCATED) != 0;
        }
        std::fill_n(out.steps + k + exist, length - exist, int32_t(0));
        std::fill_n(out.discount + k + exist, length - exist, 0.0f);
    }

    // How many of the steps marked by `n` successive bytes there are up to and with the first that is an end.
    static int64_t steps_to_end(const uint8_t* lane_marks, int64_t n) {
        constexpr uint64_t ENDS = 0x0101010101010101u * END;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            uint64_t word;
            std::memcpy(&word, lane_marks + i, 8);
            if (word & ENDS) break;
        }
        while (i < n && !(lane_marks[i] & END)) ++i;
        return std::min(i + 1, n);
    }

    void sequence_across(int64_t number, int64_t slot, int64_t length, int64_t n, const float* powers, int64_t b,
                         const Sequence& out, uint8_t* scratch, int64_t* successors) const {
        const int64_t count = length + n;
        walk(number, slot, count, out.observed + b * count, out.before + b * count, out.first + b * count, scratch,
             successors);
        int64_t last = count - 1;  // of the window at i, counted backwards: the nearest end, or n - 1 steps on
        for (int64_t i = count - 2; i >= 0; --i) {
            if (scratch[i] & END) last = i;
            if (i >= length) continue;
            const int64_t k = b * length + i;
            const bool exists = scratch[i] & STEP;
            const int64_t end = std::min(last, i + n - 1);
            const uint8_t mark = exists ? scratch[end] : 0;
            out.mask[k] = exists;
            out.steps[k] = exists ? int32_t(end - i + 1) : 0;
            out.after[k] = exists ? successors[end] : out.observed[b * count + i + n];
            out.discount[k] = !exists || mark & (TERMINATED | LOST) ? 0.0f : powers[end - i + 1];
            out.terminated[k] = (mark & TERMINATED) != 0;
            out.truncated[k] = (mark & TRUNCATED) != 0;
        }
    }

    // What stands at `count` positions from `slot` on, across episodes: rows of observations and of the steps before
    // them, the marks of the steps, and the rows of their successors.
    void walk(int64_t number, int64_t slot, int64_t count, int64_t* observed, int64_t* before, uint8_t* first,
              uint8_t* found, int64_t* successors) const {
        const int64_t base = number * rows, cursor = lanes[number].cursor;
        const uint8_t* lane_marks = marks + base;
        const bool follows = preceded(lane_marks, slot);
        before[0] = follows ? base + (slot ? slot : rows) - 1 : nothing();
        first[0] = !follows;
        int64_t here = base + slot;
        int64_t i = 0;
        for (;; ++i) {
            observed[i] = here;
            const uint8_t mark = found[i] = lane_marks[slot];
            successors[i] = mark & END ? successor_of(number, slot) : next_row(number, slot, cursor);
            if (i + 1 == count) return;
            before[i + 1] = here;
            first[i + 1] = mark & END && !(mark & CUT);
            if (mark & CUT) {
                here = successors[i];
                break;
            }
            if (++slot == rows) slot = 0;
            while (slot != cursor && !(lane_marks[slot] & STEP))
                if (++slot == rows) slot = 0;
            if (slot == cursor) {
                here = num_lanes * rows + number;
                break;
            }
            here = base + slot;
        }
        for (++i; i < count; ++i) {
            observed[i] = successors[i] = here;
            found[i] = 0;
            if (i + 1 == count) return;
            before[i + 1] = nothing();
            first[i + 1] = 0;
        }
    }

    int64_t next_row(int64_t number, int64_t slot, int64_t cursor) const {
        const int64_t after = slot + 1 == rows ? 0 : slot + 1;
        return after == cursor ? num_lanes * rows + number : number * rows + after;
    }
};

}  // namespace relive
