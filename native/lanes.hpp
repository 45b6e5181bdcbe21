// What the arrays of a ring hold: marks of rows, counters of lanes, columns. Knows bytes and integers, no Python
// object.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "copy.hpp"

namespace relive {

// Without STEP a row is an observation that only serves others: as a successor (a boundary row), or, with HISTORY, as
// an older frame. LOST on such a row: it was a step whose successor was never seen, dropped by a cut.
enum Mark : uint8_t {
    STEP = 1,
    TERMINATED = 2,
    TRUNCATED = 4,
    CUT = 8,
    LOST = 16,
    FIRST = 32,
    HISTORY = 64,
    START = 128,
    END = TERMINATED | TRUNCATED | CUT,
    ANCHOR = STEP | START
};

// What `locate` says of an id.
enum State : uint8_t { DRAWABLE, OVERWRITTEN, INCOMPLETE, NEVER_ISSUED, NO_START, DROPPED };

// One lane's counters, as they lie in the array `counters[L, 16]`; an uneventful step needs the first cache line alone.
struct Lane {
    int64_t head;            // rows ever written
    int64_t memory;          // head % depth: where in the lane's memory the next row goes
    int64_t ready;           // the first row that is not known to be drawable yet
    int64_t oldest;          // the first row whose own older rows, as far as an item needs them, are all stored
    int64_t held;            // `head` where that row already holds the successor of the newest step
    int64_t steps;           // steps ever added
    int64_t drawable;        // anchors from `oldest` to `ready`
    int64_t stored;          // steps stored now
    int64_t ready_steps;     // steps before the row `ready`, where items run across episodes
    int64_t cuts;            // streams cut
    int64_t unbootstrapped;  // truncated steps without a final observation
    int64_t ends;            // episodes that ended with an observation unlike the one before it
    int64_t repeats;         // streams that began with the final observation of such an episode
    int64_t cleared;         // rows before this one were emptied out, or never stored in this ring
    int64_t loaded;          // 1 after a load until the first write, which continues the stream of the save
    int64_t gone;            // rows before this one are stored no longer, or about to be written over

    // A writer may be killed at any moment: `held` names its row, so that it never speaks of another one.
    bool holds() const { return held && held == head; }
};

constexpr size_t COUNTERS = sizeof(Lane) / sizeof(int64_t);

// Where a lane's rows stand, as follows from `head` alone: another process may be writing, and counters that are read
// one by one could belong to different moments.
struct Position {
    int64_t head, memory, lane_slot;  // `lane_slot`: head % R, by which samplers know the row
};

// Which lanes and rows a ring has, and how far around an anchor an item looks.
struct Shape {
    int64_t lanes = 0;
    int64_t rows = 0;   // of one lane: for its steps, their final observations and older frames
    int64_t kept = 0;   // steps that a lane keeps, at most `rows`
    int64_t depth = 0;  // rows of one lane in memory: `rows`, the one after the newest, spare ones
    int bits = 0;       // of a block: so many rows of a lane, as a power of two, lie together
    int64_t span = 0, lookback = 0, starts = 1;
    bool across = false;
};

struct Column {
    char* data;           // depth * L rows, as `Rows` lays them out, then one row of zeros
    size_t row;           // bytes of one row
    size_t stride;        // from one row to the next; more than `row` where fields share a record
    int64_t frames = 1;   // that a given value has, oldest first; the newest is stored
    bool repeat = false;  // the first frame stands before itself, not zeros
    int64_t every = 0;    // kept at every so many steps, in `slots` rows a lane of its own; 0: at each
    int64_t slots = 0;
    size_t element = 1;  // bytes of a number

    size_t given() const { return row * size_t(frames); }
    const char* newest(const char* value) const { return value + row * size_t(frames - 1); }
    char* at(int64_t storage_row) const { return data + size_t(storage_row) * stride; }
};

// Another process may read a lane while it is written: what is written before becomes visible before.
inline void publish(int64_t& counter, int64_t value) {
    std::atomic_ref<int64_t>(counter).store(value, std::memory_order_release);
}
inline int64_t observe(const int64_t& counter) {
    return std::atomic_ref<int64_t>(const_cast<int64_t&>(counter)).load(std::memory_order_acquire);
}

// What has no order of its own: marks, bookkeeping, and counters that only tell how many. Plain moves, which a compiler
// must not split or repeat.
template <typename T>
inline void show(T& target, std::type_identity_t<T> value) {
    std::atomic_ref<T>(target).store(value, std::memory_order_relaxed);
}
template <typename T>
inline T peek(const T& source) {
    return std::atomic_ref<T>(const_cast<T&>(source)).load(std::memory_order_relaxed);
}

// A copy of a lane, counter by counter: they were stored so a moment ago, and a processor that loads two of them at
// once waits until both stores are through.
inline Lane copied(const Lane& lane) {
    Lane copy;
    for (size_t i = 0; i < COUNTERS; ++i)
        reinterpret_cast<int64_t*>(&copy)[i] = peek(reinterpret_cast<const int64_t*>(&lane)[i]);
    return copy;
}

}  // namespace relive
