// The usual step: it continues its stream, does not end it, and each item is one such step. Its lane's counters change
// in place, where `Ring::step` works on a copy of all of them. State and order of publication are the same.
#pragma once

#include "call.hpp"
#include "rows.hpp"

namespace relive {

class PlainSteps : public Rows {
protected:
    bool plain_ = true;     // each column has a row a step
    bool notable_ = false;  // a call has cut a stream, begun one behind an end, or filled a lane

    bool may_be_plain(const Steps& steps, bool kept_beside) const {
        const bool alone = span == 1 && !lookback && starts == 1 && !across;
        return plain_ && alone && steps.nexts && !steps.priority && !kept_beside;
    }

    // Write step k of a call; false where it is not a plain one, and nothing has changed.
    bool plain_step(const Steps& steps, int64_t k, int64_t number, int64_t& id) {
        Lane& lane = lane_of[number];
        const int64_t head = lane.head, first = first_row(number, head);
        if (!lane.holds() || lane.ready != head || lane.oldest < first) return false;
        if (steps.terminated[k] | steps.truncated[k]) return false;
        const int64_t at = storage_row(number, lane.memory), after = next_row(at);
        for (size_t c = 0; c < num_obs; ++c)
            if (std::memcmp(columns[c].at(at), steps.values[c] + size_t(k) * columns[c].row, columns[c].row) != 0)
                return false;
        make_way(number, lane, first);
        const auto copy = [&](size_t c, const char* const* values, int64_t to) {
            copy_row(columns[c].at(to), values[c] + size_t(k) * columns[c].row, columns[c].row);
        };
        for (size_t c = num_obs; c < columns.size(); ++c) copy(c, steps.values, at);
        for (size_t c = 0; c < num_obs; ++c) copy(c, steps.nexts, after);
        show(marks[at], STEP | START);
        show(marks[after], 0);
        notable_ |= head - lane.cleared == rows;
        show(lane.memory, after_(lane.memory));
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(lane.steps, lane.steps + 1);
        publish(lane.head, head + 1);
        publish(lane.held, head + 1);
        publish(lane.ready, head + 1);
        id = head * lanes + number;
        return true;
    }

private:
    // Count the new step in, and the rows out that go for it: the one that leaves the newest R, and the first steps
    // where there are more than the lane keeps. That is shown before any of them changes.
    void make_way(int64_t number, Lane& lane, int64_t first) const {
        int64_t stored = lane.stored + 1, drawable = lane.drawable + 1, oldest = lane.oldest, row = first;
        const auto leave = [&] {
            const uint8_t mark = mark_at(storage_row(number, memory_of(lane, row)));
            stored -= mark & STEP;
            if (oldest == row++) {
                drawable -= (mark & ANCHOR) == ANCHOR;
                ++oldest;
            }
        };
        while (row <= lane.head - rows) leave();
        const int64_t retired = row;
        while (stored > kept) leave();
        const int64_t gone = std::max(lane.head + 2 - depth, row > retired ? row : 0);
        if (gone > lane.gone) {
            show(lane.oldest, std::max(oldest, gone));
            publish(lane.gone, gone);
            std::atomic_thread_fence(std::memory_order_release);
        }
        for (int64_t k = retired; k < row; ++k) show(marks[storage_row(number, memory_of(lane, k))], 0);
        show(lane.oldest, oldest);
        show(lane.stored, stored);
        show(lane.drawable, drawable);
    }
};

}  // namespace relive
