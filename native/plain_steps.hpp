// The usual step: it continues its stream, does not end it, and each item begins at a step. Many lanes' are written
// together, and column by column, so that each is asked once what it is; and their counters change in place, where
// `Ring::step` works on a copy of all of them. State is the same, and so is the order of publication: first that rows
// are gone, last that the step stands. How many steps there are is shown in between, where no `snapshot` looks.
#pragma once

#include "sliding_steps.hpp"

namespace relive {

class PlainSteps : public SlidingSteps {
protected:
    bool backward_ = false;  // the last moment's lanes were written from the last one on
    bool plain_ = true;      // each column has a row a step
    bool notable_ = false;   // a call has cut a stream, begun one behind an end, or filled a lane

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

    // One step of each of the call's lanes, the first being step k; `other` writes those that are not plain.
    template <class Other>
    void write_moment(const Steps& steps, int64_t k, int64_t* ids, const Other& other) {
        Places places[2];
        // Back and forth: the caches still hold what the moment before came to last.
        backward_ = !backward_;
        const int64_t slices = (steps.n + TOGETHER - 1) / TOGETHER;
        const auto slice_at = [&](int64_t turn) {
            const int64_t first = (backward_ ? slices - 1 - turn : turn) * TOGETHER;
            return Slice{&steps, first, turn < slices ? std::min(steps.n - first, TOGETHER) : 0, k + first};
        };
        Slice slice = slice_at(0);
        find_places(slice, places[0]);
        for (int64_t turn = 0; turn < slices; ++turn) {
            const Slice next = slice_at(turn + 1);
            const Places& now = places[turn & 1];
            find_places(next, places[(turn + 1) & 1]);
            if (!now.slide || !write_sliding(slice, now, ids)) write_plain(slice, now, ids, other);
            slice = next;
        }
    }

    // Write the plain steps of a slice, and then the others.
    template <class Other>
    RELIVE_APART void write_plain(const Slice& slice, const Places& places, int64_t* ids, const Other& other) {
        Plain all[TOGETHER];
        int64_t others[TOGETHER];
        int64_t left = 0;
        Plain* end = all;
        for (int64_t i = 0; i < slice.count; ++i) {
            const Plain step{i, places.number[i], places.at[i], places.after[i]};
            const int64_t first = first_row(step.number, lane_of[step.number].head);
            if (is_plain(slice, step, first) && continues(slice, step)) {
                make_way(step, first);
                *end++ = step;
            } else {
                unsettle(step.number);
                others[left++] = i;
            }
        }
        std::atomic_thread_fence(std::memory_order_release);  // that rows are gone is shown before any of them changes
        const Column* column = columns.data();
        for (size_t c = 0; c < num_obs; ++c, ++column)
            copy<&Plain::after>(*column, slice, slice.steps->nexts[c], all, end);
        for (size_t c = num_obs; c < columns.size(); ++c, ++column)
            copy<&Plain::at>(*column, slice, slice.steps->values[c], all, end);
        for (const Plain* step = all; keeps_given_ && step < end; ++step)
            note(*slice.steps, slice.k + step->i, step->at);
        for (const Plain* step = all; step < end; ++step) ids[slice.k + step->i] = finish(*step);
        for (int64_t j = 0; j < left; ++j) other(slice, others[j]);
    }

    // The same of one lane's step, for many steps of one lane: each waits for the one before.
    RELIVE_INLINE bool write_one(const Slice& slice, int64_t* ids) {
        const int64_t number = slice.number(0);
        const Plain step = place(0, number);
        const bool slid = !slice.ends(0) && slides(number, 1);
        const int64_t first = slid ? 0 : first_row(number, lane_of[number].head);
        if (!slid && !is_plain(slice, step, first)) return false;
        const Column* const begin = columns.data();
        const Column* const others = begin + num_obs;
        const Column* const end = begin + columns.size();
        const auto k = size_t(slice.k);
        const char* const* values = slice.steps->values;
        for (const Column* c = begin; c < others; ++c, ++values)
            if (!same_row(c->at(step.at), *values + k * c->row, c->row)) return false;
        if (slid)
            slide(lane_of[number]), count_slid(1);
        else
            make_way(step, first);
        std::atomic_thread_fence(std::memory_order_release);
        for (const Column* c = others; c < end; ++c, ++values) copy_row(c->at(step.at), *values + k * c->row, c->row);
        values = slice.steps->nexts;
        for (const Column* c = begin; c < others; ++c, ++values)
            copy_row(c->at(step.after), *values + k * c->row, c->row);
        note(*slice.steps, slice.k, step.at);
        ids[slice.k] = finish(step);
        return true;
    }

private:
    // A lane's counters that change before its step stands.
    struct Counts {
        int64_t oldest, stored, drawable;
    };

    // Whether its lane is at a plain step; whether that continues the stream is not looked at.
    RELIVE_INLINE bool is_plain(const Slice& slice, const Plain& step, int64_t first) const {
        const Lane& lane = lane_of[step.number];
        if (!lane.holds() || lane.ready < lane.head + 1 - span || lane.oldest < first) return false;
        return !slice.ends(step.i);
    }

    bool continues(const Slice& slice, const Plain& step) const {
        bool same = true;
        for (size_t c = 0; c < num_obs; ++c)
            same &= same_row(columns[c].at(step.at), slice.steps->values[c] + size_t(slice.k + step.i) * columns[c].row,
                             columns[c].row);
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
