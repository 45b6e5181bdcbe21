// The ring: lanes of rows, their counters and marks. Knows bytes and integers, no Python object.
// `_kernels_numpy/ring.py` states the same rules in readable form and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "copy.hpp"

namespace relive {

enum Mark : uint8_t { STEP = 1, TERMINATED = 2, TRUNCATED = 4, CUT = 8, LOST = 16, END = TERMINATED | TRUNCATED | CUT };

// One lane's counters, as they lie in the array `counters[L, 4]`.
struct Lane {
    int64_t head;    // rows ever written
    int64_t cursor;  // the slot the next row goes to
    int64_t ripe;    // the first row that is not known to be drawable yet
    int64_t held;    // whether a successor is held for the newest step
};

struct Tallies {
    int64_t added, cuts, unbootstrapped, stored, drawable;
};

struct Column {
    char* data;     // L * R rows of the rings, lane after lane, then one held successor per lane
    size_t row;     // bytes of one row
    size_t stride;  // from one row to the next; more than `row` where fields share a record
};

// Columns of one record, whose lines are fetched once for all of them.
struct Span {
    char* data;
    size_t bytes, stride;
    size_t pick;  // which list of rows it is fetched for
};

inline void add_to_spans(std::vector<Span>& spans, const Column& column, size_t pick) {
    for (Span& span : spans) {
        char* low = std::min(span.data, column.data);
        char* high = std::max(span.data + span.bytes, column.data + column.row);
        if (span.pick != pick || span.stride != column.stride || size_t(high - low) > span.stride) continue;
        span.data = low;
        span.bytes = size_t(high - low);
        return;
    }
    spans.push_back({column.data, column.row, column.stride, pick});
}

// Which places one call made drawable and which it took away, in the order of the call's lanes, then of rows.
struct News {
    std::vector<int64_t> added, removed;
    void clear() {
        added.clear();
        removed.clear();
    }
};

// What one call writes: `[n, T]` rows of every column, contiguous.
struct Steps {
    const char* const* values;
    const char* const* nexts;  // of the observation's columns, or null
    const uint8_t *terminated, *truncated;
    const int64_t* lanes;  // null: lane i is row i
    int64_t n, length;
};

class Ring {
public:
    std::vector<Column> columns;
    std::vector<Span> spans;  // what one added step touches: all columns (0), and the held successor (1)
    size_t num_obs = 0;
    uint8_t* marks = nullptr;
    Lane* lanes = nullptr;
    Tallies* tallies = nullptr;
    int64_t num_lanes = 0, rows = 0, reach = 0;

    void write(const Steps& steps, int64_t* ids, News& news) {
        for (int64_t i = 0; i < steps.n; ++i) {
            const int64_t number = steps.lanes ? steps.lanes[i] : i;
            if (i + AHEAD < steps.n) prefetch(steps.lanes ? steps.lanes[i + AHEAD] : i + AHEAD);
            Lane& lane = lanes[number];
            const int64_t ripe = lane.ripe;
            for (int64_t t = 0; t < steps.length; ++t)
                ids[i * steps.length + t] = step(steps, i * steps.length + t, number, lane, ripe, news);
            ripen(number, lane, ripe, news);
        }
        const int64_t count = steps.n * steps.length;
        tallies->added += count;
        tallies->stored += count;
        tallies->drawable += int64_t(news.added.size()) - int64_t(news.removed.size());
    }

    void cut(const int64_t* numbers, int64_t n, News& news) {
        for (int64_t i = 0; i < n; ++i) {
            Lane& lane = lanes[numbers[i]];
            const int64_t ripe = lane.ripe;
            if (lane.held)
                close(numbers[i], lane, ripe, news);
            else
                forget_newest(numbers[i], lane);
            ripen(numbers[i], lane, ripe, news);
        }
        tallies->drawable += int64_t(news.added.size()) - int64_t(news.removed.size());
    }

    int64_t id_at(int64_t place) const {
        int64_t slot, number;
        split(place, slot, number);
        int64_t behind = lanes[number].cursor - 1 - slot;
        if (behind < 0) behind += rows;
        return (lanes[number].head - 1 - behind) * num_lanes + number;
    }

    // 0 can be drawn, 1 overwritten, 2 not complete yet, 3 never issued; `place` is set for 0 only.
    uint8_t locate(int64_t id, int64_t& place) const {
        place = 0;
        if (id < 0) return 3;
        int64_t row, number;
        split(id, row, number);
        const Lane& lane = lanes[number];
        if (row >= lane.head) return 3;
        if (row < lane.head - rows) return 1;
        int64_t slot = lane.cursor - (lane.head - row);
        if (slot < 0) slot += rows;
        if (!(marks[number * rows + slot] & STEP)) return 3;
        if (row >= lane.ripe) return 2;
        place = slot * num_lanes + number;
        return 0;
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
        const uint8_t mark = lane_marks[last];
        if (!(mark & LOST)) {
            if (++last == rows) last = 0;
            // The row after the newest is the held successor; the oldest row, in the same slot, can be no successor.
            if (last == lanes[number].cursor) last = rows;
        }
        at = number * rows + slot;
        after = last == rows ? num_lanes * rows + number : number * rows + last;
        steps = m;
        return mark;
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

private:
    static constexpr int64_t AHEAD = 6;

    char* cell(size_t column, int64_t number, int64_t slot) const {
        return columns[column].data + size_t(number * rows + slot) * columns[column].stride;
    }

    // Successors stand together, for every step of every lane touches one.
    char* successor(size_t column, int64_t number) const {
        return columns[column].data + size_t(num_lanes * rows + number) * columns[column].stride;
    }

    // One call's rows go to as many lanes, each far from the last: fetch what the lane after next will touch.
    void prefetch(int64_t number) const {
        const int64_t slot = lanes[number].cursor;
        RELIVE_PREFETCH_WRITE(marks + number * rows + slot);
        for (const Span& span : spans) {
            const int64_t row = span.pick ? num_lanes * rows + number : number * rows + slot;
            prefetch_row_for_writing(span.data + size_t(row) * span.stride, span.bytes);
        }
    }

    int64_t step(const Steps& steps, int64_t k, int64_t number, Lane& lane, int64_t ripe, News& news) {
        if (lane.held && differs(steps.values, k, number)) close(number, lane, ripe, news);
        const int64_t id = lane.head * num_lanes + number;
        const int64_t slot = claim(number, lane, ripe, news);
        for (size_t c = 0; c < columns.size(); ++c) {
            const size_t row = columns[c].row;
            copy_row(cell(c, number, slot), steps.values[c] + size_t(k) * row, row);
        }
        const bool terminated = steps.terminated[k], truncated = steps.truncated[k];
        uint8_t mark = STEP | (terminated ? TERMINATED : 0) | (truncated ? TRUNCATED : 0);
        lane.held = 0;
        if (!steps.nexts) {
            if (mark & END) mark |= LOST;
            if (truncated && !terminated) ++tallies->unbootstrapped;
        }
        marks[number * rows + slot] = mark;
        if (steps.nexts) {
            if (mark & END) {
                boundary(number, lane, ripe, news,
                         [&](size_t c) { return steps.nexts[c] + size_t(k) * columns[c].row; });
            } else {
                for (size_t c = 0; c < num_obs; ++c) {
                    const size_t row = columns[c].row;
                    copy_row(successor(c, number), steps.nexts[c] + size_t(k) * row, row);
                }
                lane.held = 1;
            }
        }
        lane.ripe = mark & END ? lane.head : std::max(lane.ripe, lane.head - reach + lane.held);
        return id;
    }

    bool differs(const char* const* values, int64_t k, int64_t number) const {
        for (size_t c = 0; c < num_obs; ++c) {
            const size_t row = columns[c].row;
            if (std::memcmp(successor(c, number), values[c] + size_t(k) * row, row) != 0) return true;
        }
        return false;
    }

    // The held successor becomes a boundary row: the stream was cut.
    void close(int64_t number, Lane& lane, int64_t ripe, News& news) {
        marks[number * rows + (lane.cursor ? lane.cursor : rows) - 1] |= CUT;
        boundary(number, lane, ripe, news, [&](size_t c) { return static_cast<const char*>(successor(c, number)); });
        lane.held = 0;
        lane.ripe = lane.head;
        ++tallies->cuts;
    }

    template <typename Source>
    void boundary(int64_t number, Lane& lane, int64_t ripe, News& news, Source source) {
        const int64_t slot = claim(number, lane, ripe, news);
        marks[number * rows + slot] = 0;
        for (size_t c = 0; c < num_obs; ++c) copy_row(cell(c, number, slot), source(c), columns[c].row);
    }

    // Take the lane's next row; what stood there is gone.
    int64_t claim(int64_t number, Lane& lane, int64_t ripe, News& news) {
        const int64_t slot = lane.cursor;
        if (marks[number * rows + slot] & STEP) {
            --tallies->stored;
            if (lane.head - rows < ripe) news.removed.push_back(slot * num_lanes + number);
        }
        ++lane.head;
        if (++lane.cursor == rows) lane.cursor = 0;
        return slot;
    }

    void ripen(int64_t number, const Lane& lane, int64_t ripe, News& news) const {
        for (int64_t row = std::max(ripe, lane.head - rows); row < lane.ripe; ++row) {
            int64_t slot = lane.cursor - (lane.head - row);
            if (slot < 0) slot += rows;
            if (marks[number * rows + slot] & STEP) news.added.push_back(slot * num_lanes + number);
        }
    }

    // The newest step's successor was never seen: only its observation is of use, as the successor of the step before.
    void forget_newest(int64_t number, Lane& lane) {
        const int64_t slot = (lane.cursor ? lane.cursor : rows) - 1;
        uint8_t& mark = marks[number * rows + slot];
        if (!lane.head || !(mark & STEP) || (mark & END)) return;
        mark = 0;
        uint8_t& before = marks[number * rows + (slot ? slot : rows) - 1];
        if (rows > 1 && lane.head > 1 && (before & STEP)) before |= CUT;
        lane.ripe = lane.head;
        ++tallies->cuts;
        --tallies->stored;
    }
};

}  // namespace relive
