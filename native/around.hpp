// The rows at some offsets from anchors, within their streams. Knows integers, no Python object.
// `around` in `_ring/kernels_numpy/rows.py` states the same rule in readable form.
#pragma once

#include "rows.hpp"

namespace relive {

// Offsets from an anchor in its stream, and how far they reach.
struct Offsets {
    const int64_t* at;
    int64_t count, back = 0, ahead = 0;

    Offsets(const int64_t* given, int64_t n) : at(given), count(n) {
        for (int64_t i = 0; i < n; ++i) {
            back = std::max(back, given[i] < -INT64_MAX ? INT64_MAX : -given[i]);
            ahead = std::max(ahead, given[i]);
        }
    }
};

// The place of an anchor, `behind` rows behind its lane's head, and how many steps of its stream lie before and behind
// it, as far as offsets reach.
struct Amid {
    int64_t number, row, memory, behind, back, ahead;
};

// Finds rows some steps from an anchor: as a local value it stays in registers.
struct Amidst {
    int64_t lanes, depth;
    int bits;

    explicit Amidst(const Rows& ring) : lanes(ring.lanes), depth(ring.depth), bits(int(ring.bits)) {}
    int64_t memory(const Amid& anchor, int64_t offset) const {
        const int64_t place = anchor.memory + offset;
        return place < 0 ? place + depth : place < depth ? place : place - depth;
    }
    int64_t row(const Amid& anchor, int64_t offset) const {
        const int64_t place = memory(anchor, offset), within = (int64_t(1) << bits) - 1;
        return (((place >> bits) * lanes + anchor.number) << bits) | (place & within);
    }
    // How many rows of the lane lie one after the other from there.
    int64_t together(const Amid& anchor, int64_t offset) const {
        const int64_t place = memory(anchor, offset), block = int64_t(1) << bits;
        return lanes == 1 ? depth - place : block - (place & (block - 1));
    }
};

// Calls `each(item, amid)` for all items, in order.
template <typename Each>
void amid(const Rows& ring, const int64_t* slots, int64_t count, int64_t back, int64_t ahead, Each each) {
    constexpr int64_t MANY = 256;  // anchors whose marks are fetched together
    ring.looking([&](auto look) {
        Amid found[MANY];
        for (int64_t begin = 0; begin < count; begin += MANY) {
            const int64_t n = std::min(MANY, count - begin);
            for (int64_t i = 0; i < n; ++i) {
                int64_t lane_slot, number;
                ring.split(slots[begin + i], lane_slot, number);
                const Position now = look(number);
                const int64_t row = ring.row_at(now, lane_slot);
                found[i] = {number, row, ring.memory_of(now, row), now.head - row, 0, 0};
                RELIVE_PREFETCH(ring.marks + ring.storage_row(number, found[i].memory));
            }
            for (int64_t i = 0; i < n; ++i) {
                const int64_t at = ring.storage_row(found[i].number, found[i].memory);
                int64_t first = at;
                found[i].back = ring.preceding(first, back);
                if (ahead) found[i].ahead = ring.window(at, ahead + 1).steps - 1;
                each(begin + i, found[i]);
            }
        }
    });
}

// The storage rows at offsets from each anchor, `[count, offsets]`, and where the stream has no step there.
inline void around(const Rows& ring, const int64_t* slots, int64_t count, const Offsets& offsets, bool repeat,
                   int64_t* rows, uint8_t* pad) {
    amid(ring, slots, count, offsets.back, offsets.ahead, [=, &ring, to = Amidst(ring)](int64_t i, const Amid& anchor) {
        for (int64_t k = i * offsets.count, o = 0; o < offsets.count; ++o, ++k) {
            const int64_t reached = std::clamp(offsets.at[o], -anchor.back, anchor.ahead);
            pad[k] = reached != offsets.at[o];
            rows[k] = pad[k] && !repeat ? ring.zero_row() : to.row(anchor, reached);
        }
    });
}

}  // namespace relive
