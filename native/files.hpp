// Rows between files, blocks in memory and batches. Knows bytes and integers, no Python object.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "crc32.hpp"
#include "lanes.hpp"

namespace relive {

inline void checksums(const Column& column, int64_t n, uint32_t* sums) {
    for (int64_t i = 0; i < n; ++i) sums[i] = crc32(column.at(i), column.row);
}

// Whether every row that is asked for is there; a negative block asks for none.
inline bool all_there(const std::vector<int64_t>& sizes, const int64_t* which, const int64_t* rows, int64_t n) {
    bool good = true;
    for (int64_t i = 0; i < n; ++i)
        if (which[i] >= 0)
            good &= which[i] < int64_t(sizes.size()) && rows[i] >= 0 && rows[i] < sizes[size_t(which[i])];
    return good;
}

inline void scatter(const std::vector<Column>& blocks, const int64_t* which, const int64_t* rows, int64_t n,
                    const Column& out) {
    constexpr int64_t AHEAD = 8;
    const auto source = [&](int64_t i) { return blocks[size_t(which[i])].at(rows[i]); };
    for (int64_t i = 0; i < n; ++i) {
        if (i + AHEAD < n && which[i + AHEAD] >= 0) prefetch_row(source(i + AHEAD), out.row);
        if (which[i] >= 0) copy_row(out.at(i), source(i), out.row);
    }
}

// A row of all lanes after the other, or blocks of rows: row r of a lane is row
// ((r % depth / block) * lanes + lane) * block + r % block of `rows`.
struct Lanes {
    Column rows;
    int64_t lanes, block, depth;
};

// A lane, its first row and the one after its last.
struct Range {
    int64_t lane, first, last;
};
static_assert(sizeof(Range) == 3 * sizeof(int64_t));

// Whether ranges have `count` rows in all, each of them rows that its lane can have at the same time.
inline bool sound_ranges(const Lanes& from, const Range* ranges, int64_t n, int64_t count) {
    for (int64_t i = 0; i < n; ++i) {
        const auto [lane, first, last] = ranges[i];
        if (lane < 0 || lane >= from.lanes || first < 0 || last < first) return false;
        if (last - first > std::min(from.depth, count)) return false;
        count -= last - first;
    }
    return count == 0;
}

template <size_t ROW>
inline void copy_rows(char* to, const char* from, size_t step, int64_t n) {
    for (int64_t i = 0; i < n; ++i) copy_block<ROW>(to + size_t(i) * ROW, from + size_t(i) * step);
}

// n rows that lie `step` bytes apart; those that come afterwards are at `next`, if there are such.
inline void copy_run(char* to, const char* from, size_t row, size_t step, int64_t n, const char* next) {
    if (next)
        for (int64_t i = 0; i < n; ++i) prefetch_row(next + size_t(i) * step, row);
    if (row == step) return copy_bytes(to, from, size_t(n) * row);
    if (row == 4) return copy_rows<4>(to, from, step, n);
    if (row == 8) return copy_rows<8>(to, from, step, n);
    for (int64_t i = 0; i < n; ++i) copy_row(to + size_t(i) * row, from + size_t(i) * step, row);
}

// Copies the rows of ranges, one range after the other. Others may write to lanes meanwhile.
inline void copy_ranges(const Lanes& from, const Range* ranges, int64_t n, char* to) {
    const size_t row = from.rows.row;
    const bool even = from.lanes == 1 || from.block == 1;  // rows of a lane at even distances, but for its end
    const int64_t block = even ? from.depth : from.block, first_of_lane = even ? 1 : block;
    const size_t step = from.rows.stride * size_t(even ? from.lanes : 1);
    for (const Range* range = ranges; range < ranges + n; ++range)
        for (int64_t now = range->first, count; now < range->last; now += count, to += size_t(count) * row) {
            const int64_t at = now % from.depth, skipped = at % block;
            const char* start = from.rows.at((at / block * from.lanes + range->lane) * first_of_lane);
            count = std::min(range->last - now, block - skipped);
            const bool more = !even && now + count < range->last && at + 2 * block <= from.depth;
            copy_run(to, start + size_t(skipped) * step, row, step, count,
                     more ? start + size_t(from.lanes * block) * step : nullptr);
        }
}

// Fills row places[i] of `out` from offsets[i] of the open file files[i]. The first i for which there was not enough to
// read (-1: none); the CRC-32 of what was read, 0 there.
inline int64_t read_rows(const int64_t* files, const int64_t* offsets, const int64_t* places, int64_t n,
                         const Column& out, uint32_t* sums) {
    int64_t failed = -1;
    for (int64_t i = 0; i < n; ++i) {
        char* row = out.at(places[i]);
        size_t got = 0;
        while (got < out.row) {
            const ssize_t count = pread(int(files[i]), row + got, out.row - got, off_t(offsets[i]) + off_t(got));
            if (count <= 0) break;
            got += size_t(count);
        }
        if (got < out.row && failed < 0) failed = i;
        sums[i] = got < out.row ? 0 : crc32(row, out.row);
    }
    return failed;
}

}  // namespace relive
