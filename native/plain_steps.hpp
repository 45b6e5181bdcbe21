// The usual step: it continues its stream, does not end it, and each item begins at a step. Many lanes' are written
// together, small columns one by one, so that each is asked once what it is; and their counters change in place, where
// `Ring::step` works on a copy of all of them. State is the same, and so is the order of publication: first that rows
// are gone, last that the step stands. How many steps there are is shown in between, where no `snapshot` looks.
#pragma once

#include "sliding_steps.hpp"

namespace relive {

class PlainSteps : public SlidingSteps {
protected:
    bool plain_ = true;     // each column has a row a step
    bool notable_ = false;  // a call has cut a stream, begun one behind an end, or filled a lane

    bool may_be_plain(const Steps& steps) const { return plain_ && steps.nexts && !lookback && starts == 1 && !across; }

    // Shows that a step stands, and returns its id. What it needs stays in registers, whatever is written.
    RELIVE_INLINE auto finishing() const {
        return [marks = marks, lane_of = lane_of, lanes = lanes, span = span](const Place& step) RELIVE_INLINE_LAMBDA {
            Lane& lane = *step.lane;
            const int64_t head = lane.head, ready = lane.ready;
            show(marks[step.at], STEP | START);
            show(marks[step.after], 0);
            show(lane.steps, lane.steps + 1);
            publish(lane.head, head + 1);
            publish(lane.held, head + 1);
            publish(lane.ready, ready + (ready == head + 1 - span));
            return head * lanes + (&lane - lane_of);
        };
    }

    // One step of each of the call's lanes, the first being step k; `other` writes those that are not plain.
    template <class Other>
    void write_moment(const Steps& steps, int64_t k, int64_t* ids, const Other& other) {
        const Finder finder(*this, steps);
        with_rows_of(columns.front().row, [&](auto rows_of) {
            Places places[2];
            Places *now = places, *ahead = places + 1;
            const auto begin = [&](int64_t first) {
                const int64_t count = std::max<int64_t>(std::min(steps.n - first, TOGETHER), 0);
                ahead->slice = {&steps, first, count, k + first};
            };
            const auto end = [&](int64_t found) {
                for (; found < ahead->slice.count; ++found) finder(*ahead, found);
                if (ahead->slice.count) settle(*ahead);
                std::swap(now, ahead);
            };
            begin(0);
            end(0);
            for (int64_t first = TOGETHER; now->slice.count; first += TOGETHER) {
                const Slice& slice = now->slice;
                begin(first);
                for (int64_t i = 0; i < slice.count; ++i) {
                    i = write_plain(rows_of, *now, i, ids, finder, *ahead);
                    if (i == slice.count) break;
                    unsettle(now->of[i].lane - lane_of);
                    other(slice, i);
                }
                end(slice.count);
            }
        });
    }

    // The same of one lane's step, for many steps of one lane: each waits for the one before.
    RELIVE_INLINE bool write_one(const Slice& slice, int64_t* ids) {
        const int64_t number = slice.number(0);
        const Place step = place(number);
        const bool slid = !slice.ends(0) && slides(number, 1);
        const int64_t first = slid ? 0 : first_row(number, step.lane->head);
        if ((!slid && !is_plain(slice, 0, *step.lane, first)) || !goes_on(*slice.steps, slice.k, step.at, 0))
            return false;
        const Column* const begin = columns.data();
        const Column* const others = begin + num_obs;
        const Column* const end = begin + columns.size();
        const auto k = size_t(slice.k);
        if (slid)
            slide(*step.lane), count_slid(1);
        else
            make_way(number, first);
        std::atomic_thread_fence(std::memory_order_release);
        const char* const* values = slice.steps->values + num_obs;
        for (const Column* c = others; c < end; ++c, ++values) copy_row(c->at(step.at), *values + k * c->row, c->row);
        values = slice.steps->nexts;
        for (const Column* c = begin; c < others; ++c, ++values)
            copy_row(c->at(step.after), *values + k * c->row, c->row);
        note(*slice.steps, slice.k, step.at);
        ids[slice.k] = finishing()(step);
        return true;
    }

private:
    // A lane's counters that change before its step stands.
    struct Counts {
        int64_t oldest, stored, drawable;
    };

    // Write plain steps of a slice from its lane `begin` on, up to one that is not; returns which that is. The first
    // column's rows are compared and written lane by lane, and between them one lane of the next slice is fetched: all
    // of it at once would have more lines on their way than the core can have.
    template <class RowsOf>
    RELIVE_INLINE int64_t write_plain(const RowsOf rows_of, const Places& places, int64_t begin, int64_t* ids,
                                      const Finder& finder, Places& ahead) {
        const Slice& slice = places.slice;
        const Steps& steps = *slice.steps;
        char* const data = columns.front().data;
        const size_t stride = columns.front().stride, observations = num_obs;
        const int64_t count = slice.count, coming = ahead.slice.count, k = slice.k + begin;
        const char* value = steps.values[0] + size_t(k) * rows_of.n;
        const char* successor = steps.nexts[0] + size_t(k) * rows_of.n;
        int64_t end = begin, slid = 0;
        for (; end < count; ++end, value += rows_of.n, successor += rows_of.n) {
            if (end < coming) finder(ahead, end);
            const Place& place = places.of[end];
            const char* const row = data + size_t(place.at) * stride;
            if (!rows_of.same(1, [=](int64_t) { return std::pair(row, value); })) break;
            if (observations > 1 && !goes_on(steps, slice.k + end, place.at, 1)) break;
            if (places.slides[end])
                slide(*place.lane), ++slid;
            else if (!makes_way(slice, end, *place.lane))
                break;
            std::atomic_thread_fence(std::memory_order_release);  // that rows are gone is shown before any changes
            rows_of.copy(data + size_t(place.after) * stride, successor);
        }
        count_slid(slid);
        const Place *const first = places.of + begin, *const last = places.of + end;
        for (size_t c = 1; c < num_obs; ++c) copy<&Place::after>(columns[c], steps.nexts[c], k, first, last);
        for (size_t c = num_obs; c < columns.size(); ++c) copy<&Place::at>(columns[c], steps.values[c], k, first, last);
        if (keeps_given_)
            for (int64_t i = begin; i < end; ++i) note(steps, slice.k + i, places.of[i].at);
        const auto finish = finishing();
        ids += k;
        for (const Place* place = first; place < last; ++place) *ids++ = finish(*place);
        return end;
    }

    // Whether a lane is at a plain step, if that continues its stream; then rows were shown to be gone for it.
    RELIVE_APART bool makes_way(const Slice& slice, int64_t i, const Lane& lane) {
        const int64_t number = &lane - lane_of, first = first_row(number, lane.head);
        if (!is_plain(slice, i, lane, first)) return false;
        make_way(number, first);
        return true;
    }

    RELIVE_INLINE bool is_plain(const Slice& slice, int64_t i, const Lane& lane, int64_t first) const {
        return lane.holds() && lane.ready >= lane.head + 1 - span && lane.oldest >= first && !slice.ends(i);
    }

    template <int64_t Place::* TO>
    static void copy(const Column& column, const char* values, int64_t k, const Place* begin, const Place* end) {
        values += size_t(k) * column.row;
        // In registers: to a compiler each copy could change the column.
        with_rows_of(column.row, [=, data = column.data, stride = column.stride](auto rows_of) {
            const char* from = values;
            for (const Place* place = begin; place < end; ++place, from += rows_of.n)
                rows_of.copy(data + size_t(place->*TO) * stride, from);
        });
    }
    // Count the new step in, and the rows out that go for it: the one that leaves the newest R, and the first steps
    // where there are more than the lane keeps. Those are none that wait to become ready: as many steps are kept. All
    // is shown but that the step stands: until it does, `memory` keeps a `snapshot` waiting.
    RELIVE_INLINE void make_way(int64_t number, int64_t first) {
        Lane& lane = lane_of[number];
        const int64_t head = lane.head, ready = lane.ready;
        const bool comes = ready == head + 1 - span;
        int64_t gone = head + 2 - depth;
        Counts now{lane.oldest, lane.stored + 1,
                   lane.drawable + (comes && (ready == head || is_anchor(number, lane, ready)))};
        const bool laps = first == head - rows;
        if (laps || now.stored > kept) {
            // Where each stored row is a step, so is the one that goes: its mark need not be read.
            const bool steps_only = lane.stored == head - first && lane.drawable == ready - first;
            if (now.oldest == first && (steps_only || is_anchor(number, lane, first))) {
                ++now.oldest, --now.stored, --now.drawable;
                if (!laps) gone = std::max(gone, first + 1);
            } else {
                now = leave(number, first, now, gone);
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
};

}  // namespace relive
