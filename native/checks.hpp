// Whether arrays hold what the kernels take for granted: one that followed the numbers of another ring would leave its
// memory. Knows integers and numbers, no Python object.
#pragma once

#include <cmath>
#include <vector>

#include "kernels.hpp"
#include "queue.hpp"

namespace relive {

// No counter comes near this in the life of a buffer, and sums and products below it cannot overflow.
constexpr int64_t LIMIT = int64_t(1) << 62;

inline bool all_uniforms(const double* u, int64_t n) {
    int64_t good = 0;  // counted without a branch, so that the compiler makes vectors of the loop
    for (int64_t i = 0; i < n; ++i) good += (u[i] >= 0.0) & (u[i] < 1.0);
    return good == n;
}

inline bool all_numbers(const double* values, int64_t n) {
    int64_t good = 0;
    for (int64_t i = 0; i < n; ++i) good += values[i] == values[i];
    return good == n;
}

// Priorities, and powers of them: finite, none negative.
inline bool all_priorities(const double* values, int64_t n) {
    bool good = true;
    for (int64_t i = 0; i < n; ++i) good &= values[i] >= 0.0 && std::isfinite(values[i]);
    return good;
}

// Whether numbers in [0, limit) are all different.
inline bool all_different(const int64_t* numbers, int64_t n, int64_t limit) {
    if (n * n < limit / 64) {  // less work than to make a list of all
        for (int64_t i = 1; i < n; ++i)
            if (std::find(numbers, numbers + i, numbers[i]) != numbers + i) return false;
        return true;
    }
    std::vector<bool> seen(static_cast<size_t>(limit));
    for (int64_t i = 0; i < n; ++i) {
        if (seen[size_t(numbers[i])]) return false;
        seen[size_t(numbers[i])] = true;
    }
    return true;
}

// Entries that only fill the last group of a level: a positive one would lead to a group that does not exist.
inline bool sound_padding(const Tree& tree) {
    bool good = true;
    for (int level = 1; level < tree.levels; ++level)
        for (int64_t entry = tree.groups[level - 1]; entry < tree.groups[level] * FAN_OUT; ++entry)
            good &= tree.sums[level][entry] == 0.0;
    return good;
}

// Across episodes, steps that wait are looked for row by row.
inline bool waits_for_its_steps(const Rows& ring, int64_t number) {
    const Lane& lane = ring.lane_of[number];
    int64_t steps = 0;
    for (int64_t row = lane.ready; row < lane.head; ++row)
        steps += ring.marks[ring.storage_row(number, ring.memory_of(lane, row))] & STEP;
    return lane.steps >= lane.ready_steps && lane.steps - lane.ready_steps <= steps;
}

// Whether every lane's counters are those of a ring of this shape. Of lanes that another process is writing (`busy`,
// null where there is none), one counter may be of this moment and another of the one before.
inline bool sound_counters(const Rows& ring, const uint8_t* busy) {
    bool good = true;
    for (int64_t number = 0; good && number < ring.lanes; ++number) {
        const Lane& lane = ring.lane_of[number];
        const auto* counters = reinterpret_cast<const int64_t*>(&lane);
        for (const int64_t* counter = counters; counter <= &lane.gone; ++counter)
            good &= *counter >= 0 && *counter < LIMIT / ring.lanes;
        if (busy && busy[number]) continue;
        good = good && lane.memory == lane.head % ring.depth && lane.oldest <= lane.head && lane.ready <= lane.head &&
               lane.oldest >= lane.head - ring.rows && lane.ready >= lane.head - ring.rows && lane.held <= lane.head &&
               lane.drawable <= ring.rows && lane.stored <= ring.kept && lane.cleared <= lane.oldest &&
               lane.gone <= lane.head && (!ring.across || waits_for_its_steps(ring, number));
    }
    return good;
}

// Whether the ring's counters can have been `seen`.
inline bool sound_seen(const Rows& ring, const Seen* seen) {
    bool good = true;
    for (int64_t number = 0; number < ring.lanes; ++number)
        good &= plausible(ring, seen[number], look(ring.lane_of[number]));
    return good;
}

// Whether a queue's entries are anchors among the rows that were seen, in order, and its episodes begin among these.
template <typename T>
bool sound_queue(const Rows& ring, const T* places, const T* firsts, const Ends& ends, const Seen& seen) {
    const int64_t rows = ring.rows, items = ends.come - ends.gone, episodes = ends.episodes_come - ends.episodes_gone;
    // How far each entry lies ahead of a base, modulo R: ascending, from `last + 1` on.
    const auto ascend = [rows](const T* entries, int64_t step, int64_t from, int64_t to, int64_t base, int64_t last,
                               int64_t limit) {
        for (int64_t k = from; k < to; ++k) {
            const int64_t entry = entries[k % rows * step], ahead = (entry - base % rows + rows) % rows;
            if (entry < 0 || entry >= rows || ahead <= last || ahead >= limit) return false;
            last = ahead;
        }
        return true;
    };
    if (ends.gone < 0 || ends.come >= LIMIT || items < 0 || items > rows) return false;
    if (!ascend(places, ring.lanes, ends.gone, ends.come, seen.oldest, -1, seen.ready - seen.oldest)) return false;
    if (!firsts) return true;
    if (ends.episodes_gone < 0 || ends.episodes_come >= LIMIT || episodes < (items > 0) || episodes > items)
        return false;
    return ascend(firsts, 1, ends.episodes_gone + 1, ends.episodes_come, ends.gone, 0, items);
}

template <typename T>
bool sound_queues(const Rows& ring, const Queue<T>& queue) {
    bool good = true;
    for (int64_t number = 0; good && number < ring.lanes; ++number) {
        const T* const firsts = queue.firsts ? queue.firsts + number * ring.rows : nullptr;
        good = sound_queue(ring, queue.places + number, firsts, queue.ends[number], queue.seen[number]);
    }
    return good;
}

}  // namespace relive
