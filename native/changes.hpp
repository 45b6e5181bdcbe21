// Items that became drawable, and that stopped being so, since a reader last looked, by the counters of the lanes.
#pragma once

#include "ring.hpp"

namespace relive {

// What one lane's counters were at the last look.
struct Seen {
    int64_t oldest, ready, head;
};

// In this order: so `oldest` is not further behind `head` than a lane has rows, whatever is written meanwhile. It may
// be ahead of it, where a lane was written round in between; then nothing is left of what was seen.
inline Seen look(const Lane& lane) {
    const int64_t head = observe(lane.head), ready = std::min(observe(lane.ready), head);
    return {std::min(observe(lane.oldest), head), ready, head};
}

// The same of what a sampler may take in that has got what is before `before.ready`; whether more waits.
inline Seen look(const Rows& ring, int64_t number, const Seen& before, bool& waits) {
    Seen now = look(ring.lane_of[number]);
    if (ring.until) {
        const int64_t ready = std::min(now.ready, std::max(ring.until[number], before.ready));
        waits |= ready < now.ready;
        now.ready = ready;
    }
    return now;
}

// Counters only grow, and no more rows lie between them than a lane has.
inline bool plausible(const Rows& ring, const Seen& seen, const Seen& now) {
    return seen.oldest >= 0 && seen.ready >= 0 && seen.head >= 0 && seen.oldest <= now.oldest &&
           seen.ready <= now.ready && seen.head <= now.head && seen.oldest <= seen.head && seen.ready <= seen.head &&
           seen.ready - seen.oldest <= ring.rows;
}

// Whether drawable ids are of rows that were `seen` to be ready: another process may have written others since.
inline bool all_seen(const Rows& ring, const Seen* seen, const int64_t* ids, int64_t n) {
    bool all = true;
    for (int64_t i = 0; i < n; ++i) {
        int64_t row, number;
        ring.split(ids[i], row, number);
        all &= row < seen[number].ready;
    }
    return all;
}

// The rows of one lane, as half-open ranges, that `seen` takes for drawable and that are gone, and those that are new.
struct Moved {
    int64_t gone_from, gone_to, come_from, come_to;
    Moved(const Rows& ring, int64_t number, const Seen& seen, const Seen& now)
        : gone_from(seen.oldest),
          gone_to(std::max(seen.oldest, std::min(now.oldest, seen.ready))),
          come_from(std::max({seen.ready, now.oldest, ring.from ? ring.from[number] : 0})),
          come_to(std::max(come_from, now.ready)) {}
};

// Calls gone(slot) for every row that is gone, whether it was an anchor or not, and then come(slot, storage row) for
// every anchor that is new, row after row. `seen` stays as it is.
template <typename Gone, typename Come>
void each_change(const Rows& ring, int64_t number, const Seen& seen, const Seen& now, Gone gone, Come come) {
    const Moved moved(ring, number, seen, now);
    const Position at = ring.position(number, now.head);
    const int64_t last = (ring.rows - 1) * ring.lanes + number;
    int64_t slot = ring.lane_slot_of(at, moved.gone_from) * ring.lanes + number;
    const auto next = [&] { slot = slot == last ? number : slot + ring.lanes; };
    for (int64_t row = moved.gone_from; row < moved.gone_to; ++row, next()) gone(slot);
    slot = ring.lane_slot_of(at, moved.come_from) * ring.lanes + number;
    for (int64_t row = moved.come_from; row < moved.come_to; ++row, next()) {
        const int64_t storage_row = ring.storage_row(number, ring.memory_of(at, row));
        if ((ring.mark_at(storage_row) & ANCHOR) == ANCHOR) come(slot, storage_row);
    }
}

// The changes of all lanes, and the counters as they are now. False where `seen` cannot have been seen.
inline bool all_changes(const Rows& ring, const Seen* seen, Seen* now, std::vector<int64_t>& gone,
                        std::vector<int64_t>& come, std::vector<int64_t>& rows) {
    for (int64_t number = 0; number < ring.lanes; ++number) {
        bool waits = false;
        now[number] = look(ring, number, seen[number], waits);
        if (!plausible(ring, seen[number], now[number])) return false;
        each_change(
            ring, number, seen[number], now[number], [&](int64_t slot) { gone.push_back(slot); },
            [&](int64_t slot, int64_t row) {
                come.push_back(slot);
                rows.push_back(row);
            });
    }
    return true;
}

}  // namespace relive
