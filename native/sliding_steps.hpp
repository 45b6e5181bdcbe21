// The most usual step: it continues its stream and does not end it, and its lane is full, so that a step goes for it.
// Of many lanes it is known beforehand that theirs will be such.
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
    // Rows of so many lanes are best fetched into the second cache, those of fewer and of more into the first.
    static constexpr int64_t FEW = 256, MANY = 2048;

    bool keeps_given_ = false;  // a priority was given, in this call or before

    // Where a lane's next step goes, found out before the call comes to it.
    struct Place {
        Lane* lane;
        int64_t at, after;  // storage rows of the step and of its successor
    };
    struct Places {
        Slice slice;
        Place of[TOGETHER];
        uint8_t slides[TOGETHER];  // whether the lane will, if the step continues its stream
    };

    RELIVE_INLINE Place place(int64_t number) const {
        Lane& lane = lane_of[number];
        const int64_t at = storage_row(number, lane.memory);
        return {&lane, at, next_row(at)};
    }

    // Finds these places, and fetches what a later slice will touch: one call's rows go to as many lanes, each far from
    // the last. Lanes are walked in one direction, which the processor's own prefetcher follows in what comes by lane.
    class Finder {
    public:
        Finder(const SlidingSteps& ring, const Steps& steps)
            : ring_(ring),
              numbers_(steps.numbers),
              lane_of_(ring.lane_of),
              next_(ring.next()),
              lanes_(ring.lanes),
              bits_(ring.bits),
              soon_(steps.n < FEW || steps.n > MANY) {
            const Span &low = ring.spans.front(), &high = ring.spans.back();
            data_ = low.data;
            stride_ = low.stride;
            last_ = size_t(high.data + stride_ + high.bytes - data_) - 1;
            second_ = std::min(last_, LINE);
            third_ = std::min(last_, 2 * LINE);
            near_ = ring.spans.size() == 2 && high.stride == stride_ && last_ < 4 * LINE ? next_.within : 0;
        }

        RELIVE_INLINE void operator()(Places& places, int64_t i) const {
            const int64_t at_call = places.slice.first + i, number = numbers_ ? numbers_[at_call] : at_call;
            Lane& lane = lane_of_[number];
            const int64_t memory = lane.memory;
            const int64_t at = (((memory >> bits_) * lanes_ + number) << bits_) | (memory & next_.within);
            int64_t after = at + 1;
            RELIVE_PREFETCH_WRITE(&lane.gone);
            if (after & near_) {
                const char* const row = data_ + size_t(at) * stride_;
                for (const size_t offset : {size_t(0), second_, third_, last_})
                    if (soon_)
                        RELIVE_PREFETCH_WRITE(row + offset);
                    else
                        RELIVE_PREFETCH(row + offset);
            } else {
                after = next_(at);
                ring_.prefetch(at, after);
            }
            Place& place = places.of[i];
            place.lane = &lane;
            place.at = at;
            place.after = after;
        }

    private:
        static constexpr size_t LINE = 64;
        const SlidingSteps& ring_;
        const int64_t* const numbers_;
        Lane* const lane_of_;
        const Next next_;
        const int64_t lanes_;
        const int bits_;
        const bool soon_;
        const char* data_;
        size_t stride_, second_, third_, last_;
        int64_t near_;  // 0: a step and its successor are never one record behind the other
    };

    RELIVE_APART void prefetch(int64_t at, int64_t after) const {
        RELIVE_PREFETCH(marks + at);
        for (const Span& span : spans)
            prefetch_row(span.data + size_t(span.pick ? after : at) * span.stride, span.bytes);
    }

    // Which steps of a slice slide, if they continue their streams; they are counted as done.
    RELIVE_INLINE void settle(Places& places) {
        const Slice& slice = places.slice;
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
                std::memset(places.slides, 1, sizeof places.slides);
                return;
            }
        }
        settle_each(places);
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

    // Whether the observations of step k, from a column on, are those that its row already holds.
    RELIVE_INLINE bool goes_on(const Steps& steps, int64_t k, int64_t at, size_t column) const {
        bool same = true;
        for (size_t c = column; c < num_obs; ++c)
            same &= same_row(columns[c].at(at), steps.values[c] + size_t(k) * columns[c].row, columns[c].row);
        return same;
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
    std::vector<uint8_t> steady_;  // of each lane, how many more of its steps are known to slide
    std::vector<int64_t> counts_;  // of each group, the calls that had begun with this ring's last one

    RELIVE_APART void settle_each(Places& places) {
        const Slice& slice = places.slice;
        for (int64_t i = 0; i < slice.count; ++i) {
            const int64_t number = places.of[i].lane - lane_of;
            uint8_t& left = steady_[size_t(number)];
            if (!left) left = slides(number, touched.begun ? UINT8_MAX : 1);
            places.slides[i] = left && !slice.ends(i);
            left -= places.slides[i];
        }
    }

    // How many of the rows from a storage row on, `most` at most, are steps at which an item begins.
    RELIVE_APART uint8_t steps_from(int64_t row, int64_t most) const {
        most = std::min(most, together_from(row));
        int64_t found = 0;
        while (found < most && (mark_at(row + found) & ANCHOR) == ANCHOR) ++found;
        return uint8_t(found);
    }
};

}  // namespace relive
