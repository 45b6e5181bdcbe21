// Writing to the ring. Knows bytes and integers, no Python object.
// `_kernels_numpy/ring.py` states the same rules in readable form and is compared with this file in the tests.
#pragma once

#include "rows.hpp"

namespace relive {

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

class Ring : public Rows {
public:
    std::vector<Span> spans;  // what one added step touches: all columns (0), and the held successor (1)

    void add_column(const Column& column) {
        const bool observation = columns.size() < num_obs;
        columns.push_back(column);
        stacked_ |= column.frames > 1;
        plain_ &= column.frames == 1 && !column.every;
        if (column.every) return;
        add_to_spans(spans, column, 0);
        if (observation) add_to_spans(spans, column, 1);
    }

    void write(const Steps& steps, int64_t* ids, News& news) {
        for (int64_t i = 0; i < steps.n; ++i) {
            const int64_t number = steps.lanes ? steps.lanes[i] : i;
            if (i + AHEAD < steps.n) prefetch(steps.lanes ? steps.lanes[i + AHEAD] : i + AHEAD);
            Lane& lane = lanes[number];
            const int64_t ripe = lane.ripe;
            for (int64_t t = 0; t < steps.length; ++t)
                ids[i * steps.length + t] = step(steps, i * steps.length + t, number, lane, ripe, news);
            tell(number, lane, ripe, news);
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
            else if (open(numbers[i], lane))
                forget_newest(numbers[i], lane);
            tell(numbers[i], lane, ripe, news);
        }
        tallies->drawable += int64_t(news.added.size()) - int64_t(news.removed.size());
    }

private:
    static constexpr int64_t AHEAD = 6;
    bool stacked_ = false, plain_ = true;

    char* cell(size_t column, int64_t number, int64_t slot) const {
        return columns[column].data + size_t(number * rows + slot) * columns[column].stride;
    }

    // Successors stand together, for every step of every lane touches one.
    char* successor(size_t column, int64_t number) const {
        return columns[column].data + size_t(num_lanes * rows + number) * columns[column].stride;
    }

    const char* zeros(size_t column) const { return columns[column].data + size_t(nothing()) * columns[column].stride; }

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
        const auto given = [&](size_t c) { return steps.values[c] + size_t(k) * columns[c].given(); };
        const auto next = [&](size_t c) { return steps.nexts[c] + size_t(k) * columns[c].given(); };
        bool goes_on = lane.held;
        if (goes_on) {
            if (differs(given, number) || older_differ(given, number, lane)) {
                close(number, lane, ripe, news);
                goes_on = false;
            }
        } else if (open(number, lane)) {
            goes_on = !older_differ(given, number, lane);
            if (!goes_on) forget_newest(number, lane);
        }
        const uint8_t first = goes_on ? 0 : begin(given, number, lane, ripe, news);
        const int64_t id = lane.head * num_lanes + number;
        const int64_t slot = claim(number, lane, ripe, news);
        if (plain_)
            for (size_t c = 0; c < columns.size(); ++c) {
                const size_t row = columns[c].row;
                copy_row(cell(c, number, slot), steps.values[c] + size_t(k) * row, row);
            }
        else
            store(given, number, lane, slot);
        const bool terminated = steps.terminated[k], truncated = steps.truncated[k];
        uint8_t mark = STEP | first | (terminated ? TERMINATED : 0) | (truncated ? TRUNCATED : 0);
        if (starts == 1 || lane.steps % starts == 0) mark |= START;
        ++lane.steps;
        lane.held = 0;
        if (!steps.nexts) {
            if (mark & END) mark |= LOST;
            if (truncated && !terminated) ++tallies->unbootstrapped;
        } else if (!(mark & END) && stacked_ && apart(given, next)) {
            mark |= CUT;
            ++tallies->cuts;
        }
        marks[number * rows + slot] = mark;
        if (steps.nexts) {
            if (mark & END) {
                const bool whole = mark & CUT || (stacked_ && apart(given, next));
                const uint8_t begins = whole ? begin(next, number, lane, ripe, news) : 0;
                boundary(number, lane, ripe, news, begins, [&](size_t c) { return columns[c].newest(next(c)); });
            } else {
                for (size_t c = 0; c < num_obs; ++c)
                    copy_row(successor(c, number), columns[c].newest(next(c)), columns[c].row);
                lane.held = 1;
            }
        }
        ripen(number, lane, mark);
        return id;
    }

    // Of stacks the newest frame; of fields that are kept at some steps only, what this step keeps.
    template <typename Given>
    void store(Given given, int64_t number, const Lane& lane, int64_t slot) {
        for (size_t c = 0; c < columns.size(); ++c) {
            const Column& column = columns[c];
            if (!column.every)
                copy_row(cell(c, number, slot), column.newest(given(c)), column.row);
            else if (lane.steps % column.every == 0)
                keep(column, number, lane.head - 1, given(c));
        }
    }

    void keep(const Column& column, int64_t number, int64_t row, const char* value) {
        const int64_t at = number * column.slots + row / column.every % column.slots;
        copy_row(column.data + size_t(at) * column.stride, value, column.row);
    }

    // Whether the newest row is a step that has not ended its episode and was not cut.
    bool open(int64_t number, const Lane& lane) const {
        return lane.head && (marks[number * rows + newest_slot(lane)] & (STEP | END)) == STEP;
    }

    template <typename Given>
    bool differs(Given given, int64_t number) const {
        for (size_t c = 0; c < num_obs; ++c)
            if (std::memcmp(successor(c, number), columns[c].newest(given(c)), columns[c].row) != 0) return true;
        return false;
    }

    // Whether the frames before the newest are not those that the newest row's observation ends with.
    template <typename Given>
    bool older_differ(Given given, int64_t number, const Lane& lane) const {
        for (size_t c = 0; stacked_ && c < num_obs; ++c) {
            const Column& column = columns[c];
            int64_t slot = newest_slot(lane);
            const char* stored = column.frames > 1 ? cell(c, number, slot) : nullptr;
            for (int64_t i = column.frames - 2; i >= 0; --i) {
                if (std::memcmp(stored, given(c) + size_t(i) * column.row, column.row) != 0) return true;
                if (stored == zeros(c)) continue;
                if (!(marks[number * rows + slot] & FIRST)) {
                    slot = (slot ? slot : rows) - 1;
                    stored = cell(c, number, slot);
                } else if (!column.repeat) {
                    stored = zeros(c);
                }
            }
        }
        return false;
    }

    // Whether the older frames of the observation after are not the newer ones of the one before.
    template <typename Given, typename Next>
    bool apart(Given given, Next next) const {
        for (size_t c = 0; c < num_obs; ++c) {
            const size_t shared = columns[c].row * size_t(columns[c].frames - 1);
            if (shared && std::memcmp(given(c) + columns[c].row, next(c), shared) != 0) return true;
        }
        return false;
    }

    // Store the older frames which a stream that begins with this observation cannot do without. Returns the mark of
    // the row of the observation itself.
    template <typename Given>
    uint8_t begin(Given given, int64_t number, Lane& lane, int64_t ripe, News& news) {
        if (!stacked_) return FIRST;
        int64_t needed = 0;
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            for (int64_t age = column.frames - 1; age > needed; --age) {
                const char* frame = given(c) + size_t(column.frames - 1 - age) * column.row;
                const char* padding = column.repeat ? frame + column.row : zeros(c);
                if (std::memcmp(frame, padding, column.row) != 0) needed = age;
            }
        }
        for (int64_t age = needed; age > 0; --age) {
            const int64_t slot = claim(number, lane, ripe, news);
            marks[number * rows + slot] = HISTORY | (age == needed ? FIRST : 0);
            for (size_t c = 0; c < num_obs; ++c) {
                const Column& column = columns[c];
                if (age >= column.frames) continue;
                copy_row(cell(c, number, slot), given(c) + size_t(column.frames - 1 - age) * column.row, column.row);
            }
        }
        return needed ? 0 : FIRST;
    }

    // The held successor becomes a boundary row: the stream was cut.
    void close(int64_t number, Lane& lane, int64_t ripe, News& news) {
        marks[number * rows + newest_slot(lane)] |= CUT;
        boundary(number, lane, ripe, news, 0, [&](size_t c) { return static_cast<const char*>(successor(c, number)); });
        all_ripe(lane);
        ++tallies->cuts;
    }

    template <typename Source>
    void boundary(int64_t number, Lane& lane, int64_t ripe, News& news, uint8_t mark, Source source) {
        const int64_t slot = claim(number, lane, ripe, news);
        marks[number * rows + slot] = mark;
        for (size_t c = 0; c < num_obs; ++c) copy_row(cell(c, number, slot), source(c), columns[c].row);
        lane.held = 0;
    }

    // Take the lane's next row; what stood there is gone.
    int64_t claim(int64_t number, Lane& lane, int64_t ripe, News& news) {
        const int64_t slot = lane.cursor;
        if (lane.head >= rows) {
            const int64_t oldest = lane.head - rows;
            const bool step = marks[number * rows + slot] & STEP;
            tallies->stored -= step;
            if (lane.ripe == oldest) {
                ++lane.ripe;
                lane.ripe_steps += step;
            }
            if (lane.floor == oldest) drop(number, lane, ripe, slot, news);
            while (lane.floor <= oldest + history) {  // rows whose own older rows are gone
                const int64_t low = slot_of(lane, lane.floor);
                if (marks[number * rows + low] & FIRST) break;
                drop(number, lane, ripe, low, news);
            }
        }
        ++lane.head;
        if (++lane.cursor == rows) lane.cursor = 0;
        return slot;
    }

    // The lowest row that can still be drawn is none any more.
    void drop(int64_t number, Lane& lane, int64_t ripe, int64_t slot, News& news) const {
        if (lane.floor < ripe && (marks[number * rows + slot] & ANCHOR) == ANCHOR)
            news.removed.push_back(slot * num_lanes + number);
        ++lane.floor;
    }

    void ripen(int64_t number, Lane& lane, uint8_t mark) const {
        if (!across) {
            lane.ripe = mark & END ? lane.head : std::max(lane.ripe, lane.head - reach + lane.held);
            return;
        }
        if (mark & CUT) all_ripe(lane);
        while (lane.steps - lane.ripe_steps + lane.held > reach) {
            lane.ripe_steps += marks[number * rows + slot_of(lane, lane.ripe)] & STEP;
            ++lane.ripe;
        }
    }

    static void all_ripe(Lane& lane) {
        lane.ripe = lane.head;
        lane.ripe_steps = lane.steps;
    }

    void tell(int64_t number, const Lane& lane, int64_t ripe, News& news) const {
        for (int64_t row = std::max(ripe, lane.floor); row < lane.ripe; ++row) {
            const int64_t slot = slot_of(lane, row);
            if ((marks[number * rows + slot] & ANCHOR) == ANCHOR) news.added.push_back(slot * num_lanes + number);
        }
    }

    // The newest step's successor was never seen: only its observation is of use, as the successor of the step before,
    // which may belong to an earlier episode, whose end is followed by observations only.
    void forget_newest(int64_t number, Lane& lane) {
        const int64_t slot = newest_slot(lane);
        marks[number * rows + slot] &= FIRST;
        const int64_t most = std::min({rows, 2 * history + 3, lane.head});
        for (int64_t behind = 2; behind <= most; ++behind) {
            uint8_t& before = marks[number * rows + slot_of(lane, lane.head - behind)];
            if (!(before & STEP)) continue;
            before |= CUT;
            break;
        }
        all_ripe(lane);
        ++tallies->cuts;
        --tallies->stored;
    }
};

}  // namespace relive
