// Where the rows of a ring are: in their lane's memory, in the columns, and among the slots of samplers.
// `_ring/lanes.py` and `_ring/kernels_numpy/rows.py` state the same rules in readable form.
#pragma once

#include <vector>

#include "touched.hpp"

namespace relive {

class Places : public Shape {
public:
    Lane* lane_of = nullptr;

    int64_t zero_row() const { return lanes * depth; }
    int64_t slots() const { return lanes * rows; }

    // Where a lane's row is in the columns: a block of each lane, lane after lane, then the next block of each.
    int64_t block() const { return int64_t(1) << bits; }
    int64_t storage_row(int64_t number, int64_t memory) const {
        return (((memory >> bits) * lanes + number) << bits) | (memory & (block() - 1));
    }
    // The other way round.
    int64_t memory_at(int64_t storage_row) const {
        return lanes == 1 ? storage_row : (storage_row >> bits) / lanes << bits | (storage_row & (block() - 1));
    }
    // What `next_row` and `together_from` need: as a local value it stays in registers, whatever a loop writes.
    struct Next {
        int64_t within, jump, end;
        bool alone;
        // How many rows of a lane lie one after the other in memory, from a storage row on.
        RELIVE_INLINE int64_t together(int64_t row) const { return alone ? end - row : within + 1 - (row & within); }
        RELIVE_INLINE int64_t operator()(int64_t row) const {
            if (++row & within) return row;
            row += jump;
            return row < end ? row : row - end;
        }
    };
    Next next() const { return {block() - 1, (lanes - 1) << bits, zero_row(), lanes == 1}; }
    int64_t next_row(int64_t row) const { return next()(row); }
    int64_t previous_row(int64_t row) const {
        if (!(row & (block() - 1))) row -= (lanes - 1) << bits;
        return row > 0 ? row - 1 : row - 1 + zero_row();
    }
    // How many rows of a lane lie one after the other in memory, from one of them on.
    int64_t together(int64_t memory) const { return lanes == 1 ? depth - memory : block() - (memory & (block() - 1)); }
    // The same of a storage row.
    int64_t together_from(int64_t row) const { return next().together(row); }

    // What samplers know a row of a lane by: its number modulo R. Rows that are still stored need no division.
    int64_t lane_slot_of(const Position& lane, int64_t row) const {
        const int64_t behind = lane.head - row;
        if (behind < 0 || behind > rows) return row % rows;
        const int64_t lane_slot = lane.lane_slot - behind;
        return lane_slot + ((lane_slot >> 63) & rows);  // half of a full ring's rows wrap: no branch could be foreseen
    }

    void split(int64_t value, int64_t& quotient, int64_t& number) const {
        if (lanes == 1) {
            quotient = value;
            number = 0;
        } else if (uint64_t(value) <= UINT32_MAX) {  // a third of the time of a 64-bit division
            quotient = uint32_t(value) / uint32_t(lanes);
            number = uint32_t(value) % uint32_t(lanes);
        } else {
            quotient = value / lanes;
            number = value % lanes;
        }
    }

    // What follows from the lane's `head`, or from what it was. Divisions are left to the first look at each lap.
    Position position(int64_t number) const { return position(number, observe(lane_of[number].head)); }
    Position position(int64_t number, int64_t head) const {
        Lap& lap = laps_[size_t(number)];
        if (uint64_t(head - lap.memory) >= uint64_t(depth)) lap.memory = head / depth * depth;
        if (uint64_t(head - lap.slots) >= uint64_t(rows)) lap.slots = head / rows * rows;
        return {head, head - lap.memory, head - lap.slots};
    }

    // Where in its lane's memory one of the last `depth` rows is. A writer has its lane, readers a position.
    template <typename At>
    int64_t memory_of(const At& lane, int64_t row) const {
        const int64_t memory = lane.memory - (lane.head - row);
        return memory + ((memory >> 63) & depth);
    }

    // A place in a lane's memory that may lie behind its end, but not by a lap.
    int64_t wrapped(int64_t memory) const { return memory < depth ? memory : memory - depth; }

    // The newest row that samplers know by `lane_slot`.
    int64_t row_at(const Position& lane, int64_t lane_slot) const { return row_at(lane, lane_slot, rows); }
    static int64_t row_at(const Position& lane, int64_t lane_slot, int64_t rows) {
        const int64_t behind = lane.lane_slot - lane_slot;
        return lane.head - behind - (((behind - 1) >> 63) & rows);
    }

    // To be called once `lanes` is known.
    void prepare() { laps_.resize(size_t(lanes)); }

protected:
    int64_t after_(int64_t memory) const { return memory + 1 == depth ? 0 : memory + 1; }
    int64_t before_(int64_t memory) const { return (memory ? memory : depth) - 1; }
    int64_t newest_of(const Lane& lane) const { return before_(lane.memory); }

private:
    // The first rows of the laps in which a reader last saw a lane: by its memory, and by its lane slots.
    struct Lap {
        int64_t memory = 0, slots = 0;
    };
    mutable std::vector<Lap> laps_;
};

}  // namespace relive
