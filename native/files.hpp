// Rows between files, blocks in memory and batches. Knows bytes and integers, no Python object.
#pragma once

#include <unistd.h>

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
