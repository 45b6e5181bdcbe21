// What can be read off the rows of a ring. Knows bytes and integers, no Python object.
// `_ring/kernels_numpy/rows.py` states the same rules in readable form and is compared with this file in the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "marks.hpp"

namespace relive {

class Rows : public Marks {
public:
    std::vector<Column> columns;
    size_t num_obs = 0;
    Touched touched;
    // Of each row -priority where one was given (-0.0 is a given zero), else +0.0; null where no sampler asks for it.
    double* given = nullptr;
    // While a sampler takes in a part of what other processes wrote: of each lane, it gets no row before `from` that it
    // has not got yet, and none from `until` on. Null: all.
    const int64_t *from = nullptr, *until = nullptr;
    bool partial = false;  // a sampler lacks rows that could be drawn

    // The oldest row that a lane stores, given its `head`.
    int64_t first_row(int64_t number, int64_t head) const {
        const Lane& lane = lane_of[number];
        return std::min(std::max({head - rows, peek(lane.cleared), observe(lane.gone)}), head);
    }

    // Where lanes stand during one call: of a single lane it is looked at once, for all items.
    struct OneLane {
        static constexpr bool alone = true;
        Position at;
        int64_t oldest_row, ready_row;
        Position operator()(int64_t) const { return at; }
        int64_t oldest(int64_t) const { return oldest_row; }
        int64_t ready(int64_t) const { return ready_row; }
    };
    struct AnyLane {
        static constexpr bool alone = false;
        const Rows& rows;
        Position operator()(int64_t number) const { return rows.position(number); }
        int64_t oldest(int64_t number) const { return observe(rows.lane_of[number].oldest); }
        int64_t ready(int64_t number) const { return observe(rows.lane_of[number].ready); }
    };

    template <typename Body>
    auto looking(Body body) const {
        if (lanes > 1) return body(AnyLane{*this});
        return body(OneLane{position(0), observe(lane_of[0].oldest), observe(lane_of[0].ready)});
    }

    void ids(const int64_t* slots, int64_t n, int64_t* out) const {
        for (int64_t i = 0; i < n; ++i) {
            int64_t lane_slot, number;
            split(slots[i], lane_slot, number);
            out[i] = row_at(position(number), lane_slot) * lanes + number;
        }
    }

    // Whether all of them can be drawn. Slots are set for drawable ids only.
    bool locate(const int64_t* ids, int64_t n, int64_t* slots, uint8_t* states) const {
        constexpr int64_t DEEP = 32;
        return looking([=, this](auto look) {
            uint8_t any = 0;
            for (int64_t i = 0; i < n; ++i) {
                if (i + DEEP < n && ids[i + DEEP] >= 0) prefetch_mark_of(ids[i + DEEP], look);
                int64_t slot = 0;
                const State state = locate(ids[i], look, slot);
                slots[i] = slot;
                any |= states[i] = state;
            }
            return !any;
        });
    }

    // The slots of rows between those of the oldest and the newest items; false where an id is of no such row. Whether
    // an item begins there only marks tell, or whoever keeps a number for each slot.
    bool within_items(const int64_t* ids, int64_t n, int64_t* slots) const {
        return looking([=, this](auto look) {
            bool all = true;
            for (int64_t i = 0; i < n; ++i) {
                if (ids[i] < 0) return false;
                int64_t row, number;
                split(ids[i], row, number);
                all &= row >= look.oldest(number) && row < look.ready(number);
                slots[i] = lane_slot_of(look(number), row) * lanes + number;
            }
            return all;
        });
    }

    // Where other processes write: `look` notes which rows of each lane are ready before a draw, and `overtaken` tells
    // after its copies which items are to be thrown away, and whether any is. A writer shows that a row is gone before
    // it writes over it, so what was copied before the fence is whole if its row is still there after it. A row that
    // was not ready when the draw began belongs to a later lap than the one drawn.
    void look(Ready& ready) const {
        ready.rows.resize(size_t(lanes));
        ready.taken.resize(size_t(lanes));
        for (const Group& group : ready.known.changed(touched, lanes))
            for (int64_t number = group.first; number < group.last; ++number) {
                int64_t& row = ready.rows[size_t(number)];
                const int64_t now = observe(lane_of[number].ready);
                ready.came += now - row;
                row = now;
            }
        ready.known.settle();
    }
    bool overtaken(const Ready& ready, const int64_t* ids, int64_t n, uint8_t* bad) const {
        // Behind a write of values it is a store that has to be visible before the look.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        uint8_t any = 0;
        for (int64_t i = 0; i < n; ++i) {
            int64_t row, number;
            split(ids[i], row, number);
            any |= bad[i] = row < peek(lane_of[number].oldest) || row >= ready.rows[size_t(number)];
        }
        return any;
    }

    // The counters of a lane between two steps of its writer. A step shows `memory` first and `head` after all that
    // counts. A writer that was killed between the two leaves them as they are, so there is an end to the looking.
    void snapshot(int64_t number, int64_t* counters) const {
        constexpr int SPINS = 1000, YIELDS = 100;
        const Lane& lane = lane_of[number];
        for (int looks = 1;; ++looks) {
            const int64_t head = observe(lane.head);
            for (size_t i = 0; i < COUNTERS; ++i) counters[i] = peek(reinterpret_cast<const int64_t*>(&lane)[i]);
            std::atomic_thread_fence(std::memory_order_acquire);
            const bool between = peek(lane.memory) == head % depth && peek(lane.head) == head;
            if (between || looks == SPINS + YIELDS) return;
            if (looks >= SPINS) std::this_thread::yield();
        }
    }

    // The storage rows of stored steps; -1 for ids that no stored step has.
    void standing(const int64_t* ids, int64_t n, int64_t* out) const {
        constexpr int64_t DEEP = 32;
        looking([=, this](auto look) {
            for (int64_t i = 0; i < n; ++i) {
                if (i + DEEP < n && ids[i + DEEP] >= 0) prefetch_mark_of(ids[i + DEEP], look);
                out[i] = standing(ids[i], look);
            }
        });
    }

    // Walks as many steps on (back, where negative) in the stream of a stored step, no further than it goes. Returns
    // the id it comes to, and sets `made` to the steps it took; -1 and 0 where `id` is not that of a stored step.
    // `seen` holds the position of each lane at its first id: a writer may add rows before the next id.
    int64_t follow(int64_t id, int64_t steps, std::vector<Position>& seen, int64_t& made) const {
        made = 0;
        if (id < 0) return -1;
        int64_t row, number;
        split(id, row, number);
        Position& now = seen[size_t(number)];
        if (now.head < 0) now = position(number);
        const int64_t first = first_row(number, now.head);
        int64_t at = standing(number, row, first, now);
        if (at < 0) return -1;
        for (; made < steps && row + made + 1 < now.head && !(mark_at(at) & END); ++made) {
            at = next_row(at);
            if (!(mark_at(at) & STEP)) break;
        }
        for (; made > steps && row + made > first; --made) {
            at = previous_row(at);
            if ((mark_at(at) & (STEP | END)) != STEP) break;
        }
        return id + made * lanes;
    }

    // Whether a stream begins in one of the last `count` rows of a lane up to a storage row.
    bool begins_since(int64_t row, int64_t count) const {
        for (int64_t i = 0; i < std::min(count, rows); ++i, row = previous_row(row))
            if (mark_at(row) & FIRST) return true;
        return false;
    }

    // Returns by how many rows, at most, an anchor lies behind its lane's head. `ahead(row, near)` is called some
    // items before `each(item, window)` for what is to be read from the window's rows, of which `near` lie together,
    // and `done(begin, end)` behind the windows of some items.
    int64_t windows(const int64_t* slots, int64_t count, int64_t n, const float* powers, const Windows& out) const {
        const auto nothing = [](int64_t, auto) {};
        return windows(slots, count, n, powers, out, nothing, nothing, nothing);
    }
    template <typename Ahead, typename Each, typename Done>
    int64_t windows(const int64_t* slots, int64_t count, int64_t n, const float* powers, const Windows& out,
                    Ahead ahead, Each each, Done done) const {
        return looking([=, this](auto look) {
            const Windows to = out;  // in registers, as all that a loop does not change
            const uint8_t* const mark_of = marks;
            const Next next = this->next();
            const int64_t lap = rows, all = lanes;
            int64_t behind = 0;
            const auto near = [=](int64_t at) { return look.alone ? next.end - at : next.together(at); };
            // Where items start. Their marks are on their way while those before them are worked out.
            const auto start = [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    int64_t lane_slot = slots[i], number = 0;
                    if constexpr (!look.alone) split(slots[i], lane_slot, number);
                    const Position now = look(number);
                    const int64_t row = row_at(now, lane_slot, lap), memory = memory_of(now, row);
                    const int64_t at = look.alone ? memory : storage_row(number, memory);
                    RELIVE_PREFETCH(mark_of + at);
                    ahead(at, near(at));
                    behind = std::max(behind, now.head - row);
                    to.ids[i] = row * all + number;
                    to.at[i] = at;
                }
            };
            const auto note = [&](int64_t i, const Window& found) RELIVE_INLINE_LAMBDA {
                to.after[i] = found.after;
                to.steps[i] = found.steps;
                to.terminated[i] = (found.mark & TERMINATED) != 0;
                to.truncated[i] = (found.mark & TRUNCATED) != 0;
                to.discount[i] = found.mark & (TERMINATED | LOST) ? 0.0f : powers[found.steps];
                each(i, found);
            };
            const auto one = [=](int64_t at) RELIVE_INLINE_LAMBDA {
                const uint8_t mark = peek(mark_of[at]);
                return Window{at, at, mark & LOST ? at : next(at), 1, mark};
            };
            start(0, std::min(MANY, count));
            for (int64_t begin = 0; begin < count; begin += MANY) {
                const int64_t end = std::min(begin + MANY, count);
                start(end, std::min(end + MANY, count));
                if (lookback)
                    for (int64_t i = begin; i < end; ++i) note(i, window(to.at[i], n));
                else if (n == 1)
                    for (int64_t i = begin; i < end; ++i) note(i, one(to.at[i]));
                else
                    for (int64_t i = begin; i < end; ++i)
                        note(i, plain_window(to.at[i], n, near(to.at[i]), mark_of, next));
                done(begin, end);
            }
            return behind;
        });
    }

    // The storage rows of as many frames, oldest first, of which the last stands at the storage row `newest`.
    void stack(int64_t newest, int64_t frames, bool repeat, int64_t* out) const {
        int64_t row = out[frames - 1] = newest;
        bool begun = mark_at(row) & FIRST;
        for (int64_t i = frames - 2; i >= 0; --i) {
            if (begun) {
                out[i] = repeat ? row : zero_row();
                continue;
            }
            out[i] = row = previous_row(row);
            begun = mark_at(row) & FIRST;
        }
    }

    void stacks(const int64_t* newest, int64_t n, int64_t frames, bool repeat, int64_t* out) const {
        for (int64_t i = 0; i < n; ++i) stack(newest[i], frames, repeat, out + i * frames);
    }

private:
    template <typename Look>
    State locate(int64_t id, Look look, int64_t& slot) const {
        if (id < 0) return NEVER_ISSUED;
        int64_t row, number;
        split(id, row, number);
        const Position now = look(number);
        if (row >= now.head) return NEVER_ISSUED;
        if (row < look.oldest(number)) return OVERWRITTEN;
        const uint8_t mark = mark_at(storage_row(number, memory_of(now, row)));
        if ((mark & ANCHOR) != ANCHOR) {
            // It may be that of a later row: then a writer has shown since the look that this one is gone.
            std::atomic_thread_fence(std::memory_order_acquire);
            if (row < peek(lane_of[number].oldest)) return OVERWRITTEN;
            if (mark & STEP) return NO_START;
            return mark & LOST ? DROPPED : NEVER_ISSUED;
        }
        if (row >= look.ready(number)) return INCOMPLETE;
        slot = lane_slot_of(now, row) * lanes + number;
        return DRAWABLE;
    }

    // The storage row of the step at a row of a lane, given its `first` row; -1 where no step is stored there.
    int64_t standing(int64_t number, int64_t row, int64_t first, const Position& now) const {
        if (row < first || row >= now.head) return -1;
        const int64_t at = storage_row(number, memory_of(now, row));
        return mark_at(at) & STEP ? at : -1;
    }
    template <typename Look>
    int64_t standing(int64_t id, Look look) const {
        if (id < 0) return -1;
        int64_t row, number;
        split(id, row, number);
        const Position now = look(number);
        return standing(number, row, first_row(number, now.head), now);
    }

    // In line, wherever it is called: the look would be copied to the stack for each of them.
    template <typename Look>
    RELIVE_INLINE void prefetch_mark_of(int64_t id, Look look) const {
        int64_t row, number;
        split(id, row, number);
        const Position now = look(number);
        // In range for all ids but stale and invented ones.
        if (row < now.head && row >= now.head - rows) RELIVE_PREFETCH(marks + storage_row(number, memory_of(now, row)));
    }

    static constexpr int64_t MANY = 64;  // windows whose marks are fetched together
};

}  // namespace relive
