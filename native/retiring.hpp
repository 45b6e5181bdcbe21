// Rows that go, for rows that come: what a lane's counters say of both, on a copy that `Ring::finish` shows.
#pragma once

#include "observations.hpp"

namespace relive {

class Retiring : public Observations {
protected:
    // Take the lane's next row, which overwrites the one R rows before. Returns where it is in memory.
    int64_t claim(int64_t number, Lane& lane) {
        const int64_t memory = lane.memory, gone = lane.head - rows;
        if (gone >= 0 && gone >= lane_of[number].gone) retire(number, lane, gone, mark(number, memory_of(lane, gone)));
        make_room(number, lane, lane.head - depth);
        ++lane.head;
        lane.memory = after_(lane.memory);
        return memory;
    }

    // A lane keeps so many steps: where one more has come, its first rows are retired, up to the oldest step.
    void give_up(int64_t number, Lane& lane) const {
        while (lane.stored > kept) {
            const int64_t first = first_row(number, lane.head);
            if (first == lane.head) return;
            retire(number, lane, first, mark(number, memory_of(lane, first)));
            make_room(number, lane, first);
        }
    }

    // Before what others may still read is changed: show that its row is gone, and so are the items that need it, those
    // of later rows whose older frames it has among them. A row that is gone is never one that can be drawn.
    void make_room(int64_t number, const Lane& lane, int64_t gone) const {
        Lane& shown = lane_of[number];
        if (gone < shown.gone) return;
        show(shown.oldest, std::max(lane.oldest, gone + 1));
        publish(shown.gone, gone + 1);
        std::atomic_thread_fence(std::memory_order_release);
    }

    void advance_ready(int64_t number, Lane& lane, uint8_t flags) const {
        if (!across) {
            lane.ready = flags & END ? lane.head : std::max(lane.ready, lane.head - span + lane.holds());
            return;
        }
        if (flags & CUT) all_ready(lane);
        while (lane.steps - lane.ready_steps + lane.holds() > span) {
            lane.ready_steps += mark(number, memory_of(lane, lane.ready)) & STEP;
            ++lane.ready;
        }
    }

    static void all_ready(Lane& lane) {
        lane.ready = lane.head;
        lane.ready_steps = lane.steps;
    }

private:
    // The lane's first row is stored no longer. `going` is its mark.
    void retire(int64_t number, Lane& lane, int64_t gone, uint8_t going) const {
        const bool step = going & STEP;
        lane.stored -= step;
        if (lane.ready == gone) {
            ++lane.ready;
            lane.ready_steps += step;
        }
        if (lane.oldest == gone) drop(number, lane, going);
        while (lane.oldest <= gone + lookback) {  // rows whose own older rows are gone
            const uint8_t oldest = mark(number, memory_of(lane, lane.oldest));
            if (oldest & FIRST) break;
            drop(number, lane, oldest);
        }
    }

    // The lowest row that can still be drawn is none any more. `mark` is its own.
    void drop(int64_t number, Lane& lane, uint8_t mark) const {
        // Rows that became ready in this very step are not counted yet.
        const bool counted = lane.oldest < lane_of[number].ready;
        lane.drawable -= counted && (mark & ANCHOR) == ANCHOR;
        ++lane.oldest;
    }
};

}  // namespace relive
