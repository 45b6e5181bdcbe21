// The usual step: it continues its stream, does not end it, and each item is one such step. Its lane's counters change
// in place, where `Ring::step` works on a copy of all of them. State and order of publication are the same.
#pragma once

#include "call.hpp"
#include "rows.hpp"
#include "spans.hpp"

namespace relive {

class PlainSteps : public Rows {
public:
    std::vector<Span> spans;  // what one added step touches: all columns (0), and its successor (1)

protected:
    bool plain_ = true;         // each column has a row a step
    bool keeps_given_ = false;  // a priority was given, in this call or before
    bool notable_ = false;      // a call has cut a stream, begun one behind an end, or filled a lane

    bool may_be_plain(const Steps& steps) const {
        return plain_ && steps.nexts && span == 1 && !lookback && starts == 1 && !across;
    }

    // Write step k of a call at the tick `now`; false where it is not a plain one, and nothing has changed.
    RELIVE_INLINE bool plain_step(const Steps& steps, int64_t k, int64_t number, int64_t now, int64_t& id) {
        Lane& lane = lane_of[number];
        const int64_t head = lane.head, first = first_row(number, head);
        if (!lane.holds() || lane.ready != head || lane.oldest < first) return false;
        if (steps.terminated[k] | steps.truncated[k]) return false;
        const int64_t at = storage_row(number, lane.memory), after = next_row(at);
        const Column* const begin = columns.data();
        const Column* const others = begin + num_obs;
        const Column* const end = begin + columns.size();
        const char* const* values = steps.values;
        for (const Column* c = begin; c < others; ++c, ++values)
            if (!same_row(c->at(at), *values + size_t(k) * c->row, c->row)) return false;
        const Counts counts = make_way(number, lane, first);
        const auto copy = [k](const Column& column, const char* value, int64_t to) {
            copy_row(column.at(to), value + size_t(k) * column.row, column.row);
        };
        for (const Column* c = others; c < end; ++c, ++values) copy(*c, *values, at);
        note(steps, k, at);
        show(marks[at], STEP | START);
        values = steps.nexts;
        for (const Column* c = begin; c < others; ++c, ++values) copy(*c, *values, after);
        show(marks[after], 0);
        if (arrival) show(arrival[at], now);
        notable_ |= head - lane.cleared == rows;
        show(lane.memory, after_(lane.memory));
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(lane.oldest, counts.oldest);
        show(lane.steps, lane.steps + 1);
        show(lane.drawable, counts.drawable);
        show(lane.stored, counts.stored);
        publish(lane.head, head + 1);
        publish(lane.held, head + 1);
        publish(lane.ready, head + 1);
        id = head * lanes + number;
        return true;
    }

    // Keep the priority that step k was given, if any step was given one.
    void note(const Steps& steps, int64_t k, int64_t at) const {
        if (keeps_given_) show(given[at], steps.priority ? -(steps.priority[k] + 0.0) : 0.0);  // -0.0 is 0
    }

    // One call's rows go to as many lanes, each far from the last: fetch what the lane after next will touch.
    void prefetch(int64_t number) const {
        const Lane& lane = lane_of[number];
        const int64_t row = storage_row(number, lane.memory), after = next_row(row);
        RELIVE_PREFETCH_WRITE(marks + row);
        // That of the row which will be retired.
        if (lane.stored == kept && lane.drawable < kept && kept < rows && lane.gone >= lane.head - rows)
            RELIVE_PREFETCH_WRITE(marks + storage_row(number, memory_of(lane, lane.gone)));
        for (const Span& span : spans)
            prefetch_row_for_writing(span.data + size_t(span.pick ? after : row) * span.stride, span.bytes);
    }

private:
    // What a step changes in its lane besides `head`: shown with it, so that no `snapshot` has one without the other.
    struct Counts {
        int64_t oldest, drawable, stored;
    };

    // Count the new step in, and the rows out that go for it: the one that leaves the newest R, and the first steps
    // where there are more than the lane keeps. That they are gone is shown before any of them changes.
    Counts make_way(int64_t number, Lane& lane, int64_t first) const {
        Counts counts{lane.oldest, lane.drawable + 1, lane.stored + 1};
        int64_t row = first;
        // Where each stored row is an item, so is the one that goes: its mark need not be read.
        if (lane.drawable == lane.head - first && lane.stored == lane.drawable) {
            const int64_t over = lane.stored == kept;
            counts = {first + over, lane.drawable + 1 - over, lane.stored + 1 - over};
            row += over && first > lane.head - rows;
            make_known(lane, counts.oldest, std::max(lane.head + 2 - depth, row > first ? row : 0));
            return counts;
        }
        const auto leave = [&] {
            const uint8_t mark = mark_at(storage_row(number, memory_of(lane, row)));
            counts.stored -= mark & STEP;
            if (counts.oldest == row++) {
                counts.drawable -= (mark & ANCHOR) == ANCHOR;
                ++counts.oldest;
            }
        };
        if (row == lane.head - rows) leave();
        const int64_t over = row;
        while (counts.stored > kept && row < lane.head) leave();
        make_known(lane, counts.oldest, std::max(lane.head + 2 - depth, row > over ? row : 0));
        return counts;
    }

    // Show that rows before `gone` are stored no longer.
    static void make_known(Lane& lane, int64_t oldest, int64_t gone) {
        if (gone <= lane.gone) return;
        show(lane.oldest, std::max(oldest, gone));
        publish(lane.gone, gone);
        std::atomic_thread_fence(std::memory_order_release);
    }
};

}  // namespace relive
