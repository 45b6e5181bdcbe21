// The usual step: it continues its stream, does not end it, and each item begins at a step. Many lanes' are written
// together, and column by column, so that each is asked once what it is; and their counters change in place, where
// `Ring::step` works on a copy of all of them. State and order of publication are the same.
#pragma once

#include "call.hpp"
#include "spans.hpp"
#include "tallied.hpp"

namespace relive {

// Neighbouring lanes of a call, of each of them one step.
struct Slice {
    const Steps& steps;
    int64_t first, count;  // which of the call's lanes
    int64_t k;             // where among its steps that of the first lane is

    int64_t number(int64_t i) const { return steps.numbers ? steps.numbers[first + i] : first + i; }
};

class PlainSteps : public Tallied {
public:
    std::vector<Span> spans;  // what one added step touches: all columns (0), and its successor (1)

protected:
    static constexpr int64_t TOGETHER = 8;  // lanes of a slice, at most

    bool plain_ = true;         // each column has a row a step
    bool keeps_given_ = false;  // a priority was given, in this call or before
    bool notable_ = false;      // a call has cut a stream, begun one behind an end, or filled a lane

    bool may_be_plain(const Steps& steps) const { return plain_ && steps.nexts && !lookback && starts == 1 && !across; }

    // Write the plain steps of a slice. Returns how many of the others there are, of which nothing has changed.
    int64_t write_plain(const Slice& slice, int64_t* ids, int64_t* others) {
        Plain all[TOGETHER];
        Plain* end = all;
        int64_t left = 0;
        for (int64_t i = 0; i < slice.count; ++i) {
            if (is_plain(slice, i, *end))
                ++end;
            else
                others[left++] = i;
        }
        if (!continued(slice, all, end)) {
            Plain* kept = all;
            for (Plain* step = all; step < end; ++step) {
                if (continued(slice, step, step + 1))
                    *kept++ = *step;
                else
                    others[left++] = step->i;
            }
            end = kept;
        }
        for (Plain* step = all; step < end; ++step) make_way(*step);
        std::atomic_thread_fence(std::memory_order_release);  // that rows are gone is shown before any of them changes
        const Column* column = columns.data();
        for (size_t c = 0; c < num_obs; ++c, ++column)
            copy<&Plain::after>(*column, slice, slice.steps.nexts[c], all, end);
        for (size_t c = num_obs; c < columns.size(); ++c, ++column)
            copy<&Plain::at>(*column, slice, slice.steps.values[c], all, end);
        for (const Plain* step = all; keeps_given_ && step < end; ++step)
            note(slice.steps, slice.k + step->i, step->at);
        if (summing_) add_to_sums(all, end);
        for (const Plain* step = all; step < end; ++step) ids[slice.k + step->i] = finish(*step);
        return left;
    }

    // The same of one lane's step, for many steps of one lane: each waits for the one before.
    RELIVE_INLINE bool write_one(const Slice& slice, int64_t* ids) {
        Plain step;
        if (!is_plain(slice, 0, step)) return false;
        const Column* const begin = columns.data();
        const Column* const others = begin + num_obs;
        const Column* const end = begin + columns.size();
        const auto k = size_t(slice.k);
        const char* const* values = slice.steps.values;
        for (const Column* c = begin; c < others; ++c, ++values)
            if (!same_row(c->at(step.at), *values + k * c->row, c->row)) return false;
        make_way(step);
        std::atomic_thread_fence(std::memory_order_release);
        for (const Column* c = others; c < end; ++c, ++values) copy_row(c->at(step.at), *values + k * c->row, c->row);
        values = slice.steps.nexts;
        for (const Column* c = begin; c < others; ++c, ++values)
            copy_row(c->at(step.after), *values + k * c->row, c->row);
        note(slice.steps, slice.k, step.at);
        if (summing_) add_to_sums(&step, &step + 1);
        ids[slice.k] = finish(step);
        return true;
    }

    // Keep the priority that step k was given, if any step was given one.
    void note(const Steps& steps, int64_t k, int64_t at) const {
        if (keeps_given_) show(given[at], steps.priority ? -(steps.priority[k] + 0.0) : 0.0);  // -0.0 is 0
    }

    // One call's rows go to as many lanes, each far from the last: fetch what a later lane will touch.
    void prefetch(int64_t number) const {
        const Lane& lane = lane_of[number];
        const int64_t row = storage_row(number, lane.memory), after = next_row(row);
        RELIVE_PREFETCH_WRITE(marks + row);
        // That of the row which will be retired.
        if (lane.stored == kept && kept < rows && lane.drawable + lane.head - lane.ready < kept &&
            lane.gone >= lane.head - rows)
            RELIVE_PREFETCH_WRITE(marks + storage_row(number, memory_of(lane, lane.gone)));
        for (const Span& span : spans)
            prefetch_row_for_writing(span.data + size_t(span.pick ? after : row) * span.stride, span.bytes);
    }

private:
    // One of them, and what it changes in its lane besides `head`: shown with that, so that no `snapshot` has one
    // without the other.
    struct Plain {
        Lane* lane;
        int64_t i, number;                        // which of the slice, and of the ring's lanes
        int64_t at, after;                        // storage rows of the step and of its successor
        int64_t first;                            // the first row that the lane stores
        int64_t oldest, ready, drawable, stored;  // the new counters
    };

    // Whether its lane is at a plain step; whether that continues the stream is not looked at.
    RELIVE_INLINE bool is_plain(const Slice& slice, int64_t i, Plain& step) const {
        const int64_t k = slice.k + i, number = slice.number(i);
        Lane& lane = lane_of[number];
        const int64_t head = lane.head, first = first_row(number, head);
        if (!lane.holds() || lane.ready < head + 1 - span || lane.oldest < first) return false;
        if (slice.steps.terminated[k] | slice.steps.truncated[k]) return false;
        step.lane = &lane;
        step.i = i;
        step.number = number;
        step.at = storage_row(number, lane.memory);
        step.after = next_row(step.at);
        step.first = first;
        return true;
    }

    bool is_anchor(int64_t number, const Lane& lane, int64_t row) const {
        return (mark_at(storage_row(number, memory_of(lane, row))) & ANCHOR) == ANCHOR;
    }

    // Whether the observations of some steps are those that their rows already hold.
    bool continued(const Slice& slice, Plain* begin, Plain* end) const {
        bool same = true;
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            const char* value = slice.steps.values[c] + size_t(slice.k) * column.row;
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
        with_rows_of(column.row, [&](auto rows_of) {
            for (const Plain* step = begin; step < end; ++step)
                rows_of.copy(column.at(step->*TO), values + size_t(step->i) * rows_of.n);
        });
    }

    // Count the new step in, and the rows out that go for it: the one that leaves the newest R, and the first steps
    // where there are more than the lane keeps. Those are none that wait to become ready: as many steps are kept.
    RELIVE_INLINE void make_way(Plain& step) const {
        Lane& lane = *step.lane;
        const int64_t head = lane.head, first = step.first, ready = lane.ready;
        const bool comes = ready == head + 1 - span;
        step.ready = ready + comes;
        int64_t row = first;
        // Where each stored row is a step, so are the one that goes and the one that comes: no mark need be read.
        if (lane.stored == head - first && lane.drawable == ready - first) {
            const int64_t over = lane.stored == kept;
            step.oldest = first + over;
            step.drawable = lane.drawable + comes - over;
            step.stored = lane.stored + 1 - over;
            row += over && first > head - rows;
        } else {
            step.oldest = lane.oldest;
            step.drawable = lane.drawable + (comes && (ready == head || is_anchor(step.number, lane, ready)));
            step.stored = lane.stored + 1;
            const auto leave = [&] {
                const uint8_t mark = mark_at(storage_row(step.number, memory_of(lane, row)));
                step.stored -= mark & STEP;
                if (step.oldest == row++) {
                    step.drawable -= (mark & ANCHOR) == ANCHOR;
                    ++step.oldest;
                }
            };
            if (row == head - rows) leave();
            const int64_t over = row;
            while (step.stored > kept && row < head) leave();
            if (row == over) row = first;
        }
        const int64_t gone = std::max(head + 2 - depth, row > first ? row : 0);
        if (gone <= lane.gone) return;
        show(lane.oldest, std::max(step.oldest, gone));
        publish(lane.gone, gone);
    }

    // Add what these steps change in lanes that do not show it yet.
    RELIVE_INLINE void add_to_sums(const Plain* begin, const Plain* end) {
        int64_t ready = 0, drawable = 0, stored = 0, more = 0;
        for (const Plain* step = begin; step < end; ++step) {
            const Lane& lane = *step->lane;
            const int64_t written = lane.head - lane.cleared;
            ready += step->ready - lane.ready;
            drawable += step->drawable - lane.drawable;
            stored += step->stored - lane.stored;
            if (written >= rows && (step->stored < kept || lane.stored < kept))
                more += crowded(true, step->stored) - crowded(written > rows, lane.stored);
        }
        add(sums_.of.head, end - begin);
        add(sums_.of.steps, end - begin);
        add(sums_.of.ready, ready);
        add(sums_.of.drawable, drawable);
        add(sums_.of.stored, stored);
        add(sums_.crowded, more);
    }

    // Show the lane as it is now; returns the step's id.
    RELIVE_INLINE int64_t finish(const Plain& step) {
        Lane& lane = *step.lane;
        const int64_t head = lane.head;
        show(marks[step.at], STEP | START);
        show(marks[step.after], 0);
        notable_ |= head - lane.cleared == rows;
        show(lane.memory, after_(lane.memory));
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(lane.oldest, step.oldest);
        show(lane.steps, lane.steps + 1);
        show(lane.drawable, step.drawable);
        show(lane.stored, step.stored);
        publish(lane.head, head + 1);
        publish(lane.held, head + 1);
        publish(lane.ready, step.ready);
        return head * lanes + step.number;
    }
};

}  // namespace relive
