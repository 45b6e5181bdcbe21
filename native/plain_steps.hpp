// The usual step: it continues its stream, does not end it, and each item begins at a step. Many lanes' are written
// together, and column by column, so that each is asked once what it is; and their counters change in place, where
// `Ring::step` works on a copy of all of them. State is the same, and so is the order of publication: first that rows
// are gone, last that the step stands. How many steps there are is shown in between, where no `snapshot` looks.
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
};

class PlainSteps : public Tallied {
public:
    std::vector<Span> spans;  // what one added step touches: all columns (0), and its successor (1)

protected:
    static constexpr int64_t TOGETHER = 8;  // lanes of a slice, at most; and so many ahead is fetched

    bool plain_ = true;         // each column has a row a step
    bool keeps_given_ = false;  // a priority was given, in this call or before
    bool notable_ = false;      // a call has cut a stream, begun one behind an end, or filled a lane

    bool may_be_plain(const Steps& steps) const { return plain_ && steps.nexts && !lookback && starts == 1 && !across; }

    // Where a lane's next step goes, found out before the call comes to it.
    struct Plain {
        int64_t i, number;  // which of the slice, and of the ring's lanes
        int64_t at, after;  // storage rows of the step and of its successor
    };

    RELIVE_INLINE Plain place(int64_t i, int64_t number) const {
        const int64_t at = storage_row(number, lane_of[number].memory);
        return {i, number, at, next_row(at)};
    }

    // One call's rows go to as many lanes, each far from the last: fetch what a later lane will touch.
    RELIVE_INLINE void prefetch(const Plain& step) const {
        RELIVE_PREFETCH(marks + step.at);
        const auto begin = [&](const Span& span) {
            return span.data + size_t(span.pick ? step.after : step.at) * span.stride;
        };
        // The successor's row is the next one as a rule: then all lines are asked for once.
        const char* low = begin(spans.front());
        const auto bytes = size_t(begin(spans.back()) + spans.back().bytes - low);
        if (spans.size() == 2 && bytes <= 64 * LINES) return prefetch_row(low, bytes);
        for (const Span& span : spans) prefetch_row(begin(span), span.bytes);
    }

    // One step of each of the call's lanes, the first being step k; `other` writes those that are not plain.
    template <class Other>
    void write_moment(const Steps& steps, int64_t k, int64_t* ids, const Other& other) {
        Plain places[2][TOGETHER];
        int64_t others[TOGETHER];
        const auto slice_at = [&](int64_t first) {
            return Slice{&steps, first, std::clamp<int64_t>(steps.n - first, 0, TOGETHER), k + first};
        };
        Slice slice = slice_at(0);
        for (int64_t i = 0; i < slice.count; ++i) places[0][i] = place(i, slice.number(i));
        for (int64_t turn = 0; slice.count; turn ^= 1) {
            const Slice next = slice_at(slice.first + TOGETHER);
            const int64_t left = write_plain(slice, places[turn], next, places[turn ^ 1], ids, others);
            for (int64_t j = 0; j < left; ++j) other(slice, others[j]);
            slice = next;
        }
    }

    // Write the plain steps of a slice, whose places are known, while those of the `next` one are found out. Returns
    // how many of the others there are, of which nothing has changed.
    int64_t write_plain(const Slice& slice, Plain* all, const Slice& next, Plain* ahead, int64_t* ids,
                        int64_t* others) {
        const bool same = continued(slice, all, all + slice.count);
        Plain* end = all;
        int64_t left = 0, slid = 0;
        for (int64_t i = 0; i < slice.count; ++i) {
            if (i < next.count) {
                ahead[i] = place(i, next.number(i));
                prefetch(ahead[i]);
            }
            const Plain& step = all[i];
            const bool slides = may_slide(slice, step);
            const int64_t first = slides ? 0 : first_row(step.number, lane_of[step.number].head);
            if (!(slides || is_plain(slice, step, first)) || !(same || continued(slice, &step, &step + 1))) {
                others[left++] = i;
                continue;
            }
            if (slides)
                slide(step), ++slid;
            else
                make_way(step, first);
            if (end != &step) *end = step;
            ++end;
        }
        if (summing_) count_slid(slid);
        std::atomic_thread_fence(std::memory_order_release);  // that rows are gone is shown before any of them changes
        const Column* column = columns.data();
        for (size_t c = 0; c < num_obs; ++c, ++column)
            copy<&Plain::after>(*column, slice, slice.steps->nexts[c], all, end);
        for (size_t c = num_obs; c < columns.size(); ++c, ++column)
            copy<&Plain::at>(*column, slice, slice.steps->values[c], all, end);
        for (const Plain* step = all; keeps_given_ && step < end; ++step)
            note(*slice.steps, slice.k + step->i, step->at);
        for (const Plain* step = all; step < end; ++step) ids[slice.k + step->i] = finish(*step);
        return left;
    }

    // The same of one lane's step, for many steps of one lane: each waits for the one before.
    RELIVE_INLINE bool write_one(const Slice& slice, int64_t* ids) {
        const int64_t number = slice.number(0);
        const Plain step = place(0, number);
        const bool slides = may_slide(slice, step);
        const int64_t first = slides ? 0 : first_row(number, lane_of[number].head);
        if (!slides && !is_plain(slice, step, first)) return false;
        const Column* const begin = columns.data();
        const Column* const others = begin + num_obs;
        const Column* const end = begin + columns.size();
        const auto k = size_t(slice.k);
        const char* const* values = slice.steps->values;
        for (const Column* c = begin; c < others; ++c, ++values)
            if (!same_row(c->at(step.at), *values + k * c->row, c->row)) return false;
        if (slides)
            slide(step);
        else
            make_way(step, first);
        if (slides && summing_) count_slid(1);
        std::atomic_thread_fence(std::memory_order_release);
        for (const Column* c = others; c < end; ++c, ++values) copy_row(c->at(step.at), *values + k * c->row, c->row);
        values = slice.steps->nexts;
        for (const Column* c = begin; c < others; ++c, ++values)
            copy_row(c->at(step.after), *values + k * c->row, c->row);
        note(*slice.steps, slice.k, step.at);
        ids[slice.k] = finish(step);
        return true;
    }

    // Keep the priority that step k was given, if any step was given one.
    void note(const Steps& steps, int64_t k, int64_t at) const {
        if (keeps_given_) show(given[at], steps.priority ? -(steps.priority[k] + 0.0) : 0.0);  // -0.0 is 0
    }

private:
    // A lane's counters that change before its step stands.
    struct Counts {
        int64_t oldest, stored, drawable;
    };

    // Whether its lane is at a plain step; whether that continues the stream is not looked at.
    RELIVE_INLINE bool is_plain(const Slice& slice, const Plain& step, int64_t first) const {
        const int64_t k = slice.k + step.i;
        const Lane& lane = lane_of[step.number];
        if (!lane.holds() || lane.ready < lane.head + 1 - span || lane.oldest < first) return false;
        return !(slice.steps->terminated[k] | slice.steps->truncated[k]);
    }

    // The same of the usual case, asked as few questions as possible: the lane is full, and its first row is a step
    // that goes for the new one. As many are stored and drawable then.
    RELIVE_INLINE bool may_slide(const Slice& slice, const Plain& step) const {
        const int64_t k = slice.k + step.i;
        const Lane& lane = lane_of[step.number];
        const int64_t head = lane.head, oldest = lane.oldest, waiting = span - 1;
        const int64_t differ =
            (lane.held ^ head) | (lane.ready ^ (head - waiting)) | (lane.stored ^ kept) | (lane.gone ^ oldest);
        if (differ | slice.steps->terminated[k] | slice.steps->truncated[k]) return false;
        if (head - lane.cleared == rows) return false;                                     // which is notable
        if (head - oldest == kept && lane.drawable == kept - waiting) return kept < rows;  // no row is anything else
        return !waiting && head - oldest < rows && is_anchor(step.number, lane, oldest);
    }

    // What `make_way` does there.
    RELIVE_INLINE void slide(const Plain& step) {
        Lane& lane = lane_of[step.number];
        const int64_t oldest = lane.oldest + 1;
        show(lane.memory, after_(lane.memory));
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(lane.oldest, oldest);
        publish(lane.gone, oldest);
    }

    void count_slid(int64_t number) {
        add(sums_.of.head, number);
        add(sums_.of.steps, number);
        add(sums_.of.ready, number);
    }

    bool is_anchor(int64_t number, const Lane& lane, int64_t row) const {
        return (mark_at(storage_row(number, memory_of(lane, row))) & ANCHOR) == ANCHOR;
    }

    // Whether the observations of some steps are those that their rows already hold.
    bool continued(const Slice& slice, const Plain* begin, const Plain* end) const {
        bool same = true;
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            const char* value = slice.steps->values[c] + size_t(slice.k) * column.row;
            with_rows_of(column.row, [&](auto rows_of) {
                for (const Plain* step = begin; step < end; ++step)
                    same &= rows_of.same(column.at(step->at), value + size_t(step->i) * rows_of.n);
            });
        }
        return same;
    }

    template <int64_t Plain::* TO>
    static void copy(const Column& column, const Slice& slice, const char* values, const Plain* begin,
                     const Plain* end) {
        values += size_t(slice.k) * column.row;
        // In registers: to a compiler each copy could change the column.
        with_rows_of(column.row, [=, data = column.data, stride = column.stride](auto rows_of) {
            for (const Plain* step = begin; step < end; ++step)
                rows_of.copy(data + size_t(step->*TO) * stride, values + size_t(step->i) * rows_of.n);
        });
    }

    // Count the new step in, and the rows out that go for it: the one that leaves the newest R, and the first steps
    // where there are more than the lane keeps. Those are none that wait to become ready: as many steps are kept. All
    // is shown but that the step stands: until it does, `memory` keeps a `snapshot` waiting.
    RELIVE_INLINE void make_way(const Plain& step, int64_t first) {
        Lane& lane = lane_of[step.number];
        const int64_t head = lane.head, ready = lane.ready;
        const bool comes = ready == head + 1 - span;
        int64_t gone = head + 2 - depth;
        Counts now{lane.oldest, lane.stored + 1,
                   lane.drawable + (comes && (ready == head || is_anchor(step.number, lane, ready)))};
        const bool laps = first == head - rows;
        if (laps || now.stored > kept) {
            // Where each stored row is a step, so is the one that goes: its mark need not be read.
            const bool steps_only = lane.stored == head - first && lane.drawable == ready - first;
            if (now.oldest == first && (steps_only || is_anchor(step.number, lane, first))) {
                ++now.oldest, --now.stored, --now.drawable;
                if (!laps) gone = std::max(gone, first + 1);
            } else {
                now = leave(step.number, first, now, gone);
            }
        }
        if (summing_) {
            const int64_t written = head - lane.cleared;
            add(sums_.of.head, 1);
            add(sums_.of.steps, 1);
            add(sums_.of.ready, comes);
            add(sums_.of.drawable, now.drawable - lane.drawable);
            add(sums_.of.stored, now.stored - lane.stored);
            if (written >= rows && (now.stored < kept || lane.stored < kept))
                add(sums_.crowded, crowded(true, now.stored) - crowded(written > rows, lane.stored));
        }
        notable_ |= head - lane.cleared == rows;
        show(lane.memory, after_(lane.memory));
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(lane.oldest, now.oldest);
        show(lane.drawable, now.drawable);
        show(lane.stored, now.stored);
        if (gone > lane.gone) publish(lane.gone, gone);
    }

    // What goes where the first row is no step that can be drawn.
    RELIVE_APART Counts leave(int64_t number, int64_t row, Counts now, int64_t& gone) const {
        const Lane& lane = lane_of[number];
        const auto one = [&] {
            const uint8_t mark = mark_at(storage_row(number, memory_of(lane, row)));
            now.stored -= mark & STEP;
            if (now.oldest == row++) {
                now.drawable -= (mark & ANCHOR) == ANCHOR;
                ++now.oldest;
            }
        };
        if (row == lane.head - rows) one();
        const int64_t over = row;
        while (now.stored > kept && row < lane.head) one();
        if (row > over) gone = std::max(gone, row);
        return now;
    }

    // Show that the step stands; returns its id.
    RELIVE_INLINE int64_t finish(const Plain& step) {
        Lane& lane = lane_of[step.number];
        const int64_t head = lane.head, ready = lane.ready;
        show(marks[step.at], STEP | START);
        show(marks[step.after], 0);
        show(lane.steps, lane.steps + 1);
        publish(lane.head, head + 1);
        publish(lane.held, head + 1);
        publish(lane.ready, ready + (ready == head + 1 - span));
        return head * lanes + step.number;
    }
};

}  // namespace relive
