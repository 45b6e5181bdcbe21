// The most usual step: it continues its stream and does not end it, and its lane is full, so that a step goes for it.
// Of many lanes it is known beforehand that theirs will be such, and they are written column by column.
#pragma once

#include "call.hpp"
#include "spans.hpp"
#include "tallied.hpp"

// What few steps need is kept out of the way of the others.
#if defined(__GNUC__) || defined(__clang__)
#define RELIVE_APART __attribute__((noinline))
#else
#define RELIVE_APART
#endif

namespace relive {

// Neighbouring lanes of a call, of each of them one step.
struct Slice {
    const Steps* steps;
    int64_t first, count;  // which of the call's lanes
    int64_t k;             // where among its steps that of the first lane is

    int64_t number(int64_t i) const { return steps->number(first + i); }
    bool ends(int64_t i) const { return steps->terminated[k + i] | steps->truncated[k + i]; }
};

class SlidingSteps : public Tallied {
public:
    std::vector<Span> spans;  // what one added step touches: all columns (0), and its successor (1)

    // To be called once `lanes` is known.
    void prepare() {
        Tallied::prepare();
        steady_.resize(size_t(lanes));
        counts_.assign(size_t(Touched::groups_of(lanes)), -1);
    }

protected:
    static constexpr int64_t TOGETHER = 8;  // lanes of a slice, at most; and so many ahead is fetched

    bool keeps_given_ = false;  // a priority was given, in this call or before

    // Where the next steps of a slice's lanes go, found out before the call comes to them.
    struct Places {
        Lane* lane[TOGETHER];
        int64_t number[TOGETHER];               // of the ring's lanes
        int64_t at[TOGETHER], after[TOGETHER];  // storage rows of the step and of its successor
        bool slide;                             // all lanes will, if the steps continue their streams
    };

    // One call's rows go to as many lanes, each far from the last: fetch what a later slice will touch.
    RELIVE_INLINE void find_places(const Slice& slice, Places& places) {
        const Next next = this->next();
        const int64_t lanes = this->lanes, within = next.within;
        const int bits = this->bits;
        Lane* const lane_of = this->lane_of;
        const uint8_t* const marks = this->marks;
        const int64_t* const numbers = slice.steps->numbers;
        // The successor's row is the next one as a rule: then all lines are asked for once.
        const Span &low = spans.front(), &high = spans.back();
        const char* const data = low.data;
        const size_t stride = low.stride, bytes = size_t(high.data + stride + high.bytes - data);
        const bool record = spans.size() == 2 && high.stride == stride && bytes <= 64 * LINES;
        const bool soon = slice.steps->n < FEW || slice.steps->n > MANY;
        for (int64_t i = 0; i < slice.count; ++i) {
            const int64_t number = numbers ? numbers[slice.first + i] : slice.first + i;
            Lane& lane = lane_of[number];
            const int64_t memory = lane.memory;
            const int64_t at = (((memory >> bits) * lanes + number) << bits) | (memory & within), after = next(at);
            RELIVE_PREFETCH_WRITE(&lane.gone);
            RELIVE_PREFETCH(marks + at);
            if (!record || after != at + 1)
                prefetch(at, after);
            else if (soon)
                prefetch_row<true>(data + size_t(at) * stride, bytes);
            else
                prefetch_row(data + size_t(at) * stride, bytes);
            places.lane[i] = &lane;
            places.number[i] = number;
            places.at[i] = at;
            places.after[i] = after;
        }
        places.slide = settle(slice, places);
    }

    RELIVE_APART void prefetch(int64_t at, int64_t after) const {
        RELIVE_PREFETCH(marks + at);
        for (const Span& span : spans)
            prefetch_row(span.data + size_t(span.pick ? after : at) * span.stride, span.bytes);
    }

    // How many steps that continue the stream and do not end it, `most` at most, will find the lane full, and a step as
    // its first row, which goes for them. As many are stored and drawable then.
    RELIVE_INLINE uint8_t slides(int64_t number, uint8_t most) const {
        const Lane& lane = lane_of[number];
        const int64_t head = lane.head, oldest = lane.oldest, waiting = span - 1;
        const int64_t differ =
            (lane.held ^ head) | (lane.ready ^ (head - waiting)) | (lane.stored ^ kept) | (lane.gone ^ oldest);
        if (differ || head - lane.cleared <= rows) return 0;  // to fill a lane is notable
        if (head - oldest == kept && lane.drawable == kept - waiting) return kept < rows ? most : 0;  // all are steps
        if (waiting || head - oldest >= rows) return 0;
        return steps_from(storage_row(number, memory_of(lane, oldest)), std::min<int64_t>(most, head - oldest));
    }

    // Count the new step in, and the one out that goes for it.
    RELIVE_INLINE void slide(Lane& lane) {
        const int64_t oldest = lane.oldest + 1;
        show(lane.memory, after_(lane.memory));
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(lane.oldest, oldest);
        publish(lane.gone, oldest);
    }
    void count_slid(int64_t number) {
        if (!summing_) return;
        add(sums_.of.head, number);
        add(sums_.of.steps, number);
        add(sums_.of.ready, number);
    }

    // Write a slice whose lanes slide, if its steps continue their streams; whether they do.
    bool write_sliding(const Slice& slice, const Places& places, int64_t* ids) {
        const int64_t count = slice.count;
        if (!continued(slice, places)) return false;
        for (int64_t i = 0; i < count; ++i) slide(*places.lane[i]);
        count_slid(count);
        std::atomic_thread_fence(std::memory_order_release);  // that rows are gone is shown before any of them changes
        const char* const* values = slice.steps->nexts;
        for (size_t c = 0; c < columns.size(); ++c) {
            if (c == num_obs) values = slice.steps->values;
            copy(columns[c], slice, values[c], c < num_obs ? places.after : places.at);
        }
        for (int64_t i = 0; keeps_given_ && i < count; ++i) note(*slice.steps, slice.k + i, places.at[i]);
        uint8_t* const marks = this->marks;
        const int64_t lanes = this->lanes;
        ids += slice.k;
        for (int64_t i = 0; i < count; ++i) {
            Lane& lane = *places.lane[i];
            const int64_t head = lane.head;
            show(marks[places.at[i]], STEP | START);
            show(marks[places.after[i]], 0);
            show(lane.steps, lane.steps + 1);
            publish(lane.head, head + 1);
            publish(lane.held, head + 1);
            publish(lane.ready, lane.ready + 1);
            ids[i] = head * lanes + places.number[i];
        }
        return true;
    }

    // Keep the priority that step k was given, if any step was given one.
    void note(const Steps& steps, int64_t k, int64_t at) const {
        if (keeps_given_) show(given[at], steps.priority ? -(steps.priority[k] + 0.0) : 0.0);  // -0.0 is 0
    }

    // A call begins: whatever was known of lanes that others may have written since this ring's last call is not.
    void begin_call(const int64_t* numbers, int64_t n) {
        if (!touched.begun) return;
        Touched::each_group(numbers, n, [this](int64_t number) {
            const int64_t before = observe(touched.begun[number]);
            if (std::exchange(counts_[size_t(number)], before + 1) == before) return;
            const Group group = Touched::group(number, lanes);
            std::fill(steady_.begin() + group.first, steady_.begin() + group.last, uint8_t(0));
        });
    }
    // Nor is that of a lane that is written otherwise.
    void unsettle(int64_t number) { steady_[size_t(number)] = 0; }

    bool is_anchor(int64_t number, const Lane& lane, int64_t row) const {
        return (mark_at(storage_row(number, memory_of(lane, row))) & ANCHOR) == ANCHOR;
    }

private:
    // Rows of so many lanes are best fetched into the second cache, those of fewer and of more into the first.
    static constexpr int64_t FEW = 256, MANY = 2048;

    std::vector<uint8_t> steady_;  // of each lane, how many more of its steps are known to slide
    std::vector<int64_t> counts_;  // of each group, the calls that had begun with this ring's last one

    // Whether all steps of a slice slide, if they continue their streams; they are counted as done.
    RELIVE_INLINE bool settle(const Slice& slice, const Places& places) {
        static_assert(TOGETHER == sizeof(uint64_t));
        const auto word = [](const uint8_t* from) {
            uint64_t found;
            std::memcpy(&found, from, sizeof found);
            return found;
        };
        uint8_t* const steady = steady_.data() + slice.first;
        if (!slice.steps->numbers && slice.count == TOGETHER) {
            const uint64_t ends = word(slice.steps->terminated + slice.k) | word(slice.steps->truncated + slice.k);
            const uint64_t left = word(steady), less = left - EACH;
            if (!(ends | (less & ~left & EACH * 0x80))) {  // and no byte of `left` is 0
                std::memcpy(steady, &less, sizeof less);
                return true;
            }
        }
        return settle_each(slice, places);
    }
    bool settle_each(const Slice& slice, const Places& places) {
        bool slide = true;
        for (int64_t i = 0; i < slice.count; ++i) {
            uint8_t& left = steady_[size_t(places.number[i])];
            if (!left) left = slides(places.number[i], touched.begun ? UINT8_MAX : 1);
            if (slice.ends(i) || !left)
                slide = false;
            else
                --left;
        }
        return slide;
    }

    // How many of the rows from a storage row on, `most` at most, are steps at which an item begins.
    RELIVE_APART uint8_t steps_from(int64_t row, int64_t most) const {
        most = std::min(most, together_from(row));
        int64_t found = 0;
        while (found < most && (mark_at(row + found) & ANCHOR) == ANCHOR) ++found;
        return uint8_t(found);
    }

    // Whether the observations of the steps are those that their rows already hold.
    bool continued(const Slice& slice, const Places& places) const {
        bool same = true;
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            const char* value = slice.steps->values[c] + size_t(slice.k) * column.row;
            with_rows_of(column.row, [&, data = column.data, stride = column.stride](auto rows_of) {
                same &= rows_of.same(slice.count, [&](int64_t i) {
                    return std::pair(data + size_t(places.at[i]) * stride, value + size_t(i) * rows_of.n);
                });
            });
        }
        return same;
    }

    static void copy(const Column& column, const Slice& slice, const char* values, const int64_t* to) {
        values += size_t(slice.k) * column.row;
        // In registers: to a compiler each copy could change the column.
        with_rows_of(column.row, [=, data = column.data, stride = column.stride, n = slice.count](auto rows_of) {
            for (int64_t i = 0; i < n; ++i) rows_of.copy(data + size_t(to[i]) * stride, values + size_t(i) * rows_of.n);
        });
    }
};

}  // namespace relive
