// Rows between files, blocks in memory and batches. Knows bytes and integers, no Python object.
#pragma once

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#if defined(_WIN32)
#include <io.h>
#else
#include <unistd.h>
#endif

#include "crc32.hpp"
#include "lanes.hpp"

namespace relive {

inline void checksums(const Column& column, int64_t n, uint32_t* sums) {
    for (int64_t i = 0; i < n; ++i) sums[i] = crc32(column.at(i), column.row);
}

// How rows of lanes lie: a row of all lanes after the other, or blocks of rows. Row r of a lane is row
// ((r % depth / block) * lanes + lane) * block + r % block.
struct Lanes {
    int64_t lanes, block, depth;
};

// A lane, its first row and the one after its last.
struct Range {
    int64_t lane, first, last;
};
static_assert(sizeof(Range) == 3 * sizeof(int64_t));

// Whether ranges have `count` rows in all, each of them rows that its lane can have at the same time; of no lane (-1)
// any, where there may be such.
inline bool sound_ranges(const Lanes& in, const Range* ranges, int64_t n, int64_t count, bool of_none = false) {
    for (int64_t i = 0; i < n; ++i) {
        const auto [lane, first, last] = ranges[i];
        const bool none = of_none && lane == -1;
        if (!none && (lane < 0 || lane >= in.lanes)) return false;
        if (first < 0 || last < first) return false;
        if (last - first > (none ? count : std::min(in.depth, count))) return false;
        count -= last - first;
    }
    return count == 0;
}

// Calls `run(at, step, count, next)` for every stretch of a range: `count` rows from `at` on that lie `step` rows
// apart. Those that come afterwards begin at `next`, if there are such (else -1).
template <typename Run>
inline void each_run(const Lanes& in, const Range& range, const Run& run) {
    const bool even = in.lanes == 1 || in.block == 1;  // rows of a lane at even distances, but for its end
    const int64_t block = even ? in.depth : in.block, first_of_lane = even ? 1 : block, step = even ? in.lanes : 1;
    for (int64_t now = range.first, count; now < range.last; now += count) {
        const int64_t at = now % in.depth, skipped = at % block;
        const int64_t start = (at / block * in.lanes + range.lane) * first_of_lane;
        count = std::min(range.last - now, block - skipped);
        const bool more = !even && now + count < range.last && at + 2 * block <= in.depth;
        run(start + skipped * step, step, count, more ? start + in.lanes * block : -1);
    }
}

template <size_t ROW>
inline void copy_rows(char* to, size_t to_step, const char* from, size_t from_step, int64_t n) {
    for (int64_t i = 0; i < n; ++i) copy_block<ROW>(to + size_t(i) * to_step, from + size_t(i) * from_step);
}

// n rows, each so many bytes behind the one before it.
inline void copy_run(char* to, size_t to_step, const char* from, size_t from_step, size_t row, int64_t n) {
    if (row == to_step && row == from_step) return copy_bytes(to, from, size_t(n) * row);
    if (row == 4) return copy_rows<4>(to, to_step, from, from_step, n);
    if (row == 8) return copy_rows<8>(to, to_step, from, from_step, n);
    for (int64_t i = 0; i < n; ++i) copy_row(to + size_t(i) * to_step, from + size_t(i) * from_step, row);
}

// So many rows of all columns at a time: where columns lie together in records, a record is in the cache meanwhile.
constexpr int64_t TOGETHER = 32;

// A column of lanes, and where what it has goes next, row after row.
struct Copied {
    Column from;
    char* to;
};

// Copies the rows of ranges, one range after the other. Others may write to lanes meanwhile.
inline void copy_ranges(std::vector<Copied>& columns, const Lanes& in, const Range* ranges, int64_t n) {
    for (const Range* range = ranges; range < ranges + n; ++range)
        each_run(in, *range, [&](int64_t at, int64_t step, int64_t count, int64_t next) {
            if (next >= 0)
                for (const Copied& column : columns)
                    for (int64_t i = 0; i < count; ++i) prefetch_row(column.from.at(next + i), column.from.row);
            for (int64_t done = 0, some; done < count; done += some) {
                some = std::min(TOGETHER, count - done);
                for (auto& [from, to] : columns) {
                    copy_run(to, from.row, from.at(at + done * step), from.stride * size_t(step), from.row, some);
                    to += size_t(some) * from.row;
                }
            }
        });
}

// A column of lanes, and what comes next into it, row after row.
struct Filled {
    Column to;
    const char* from;
};

// Copies values of columns to the rows of ranges, one range after the other; those of no lane are passed over.
inline void set_ranges(std::vector<Filled>& columns, const Lanes& in, const Range* ranges, int64_t n) {
    for (const Range* range = ranges; range < ranges + n; ++range) {
        if (range->lane < 0) {
            for (Filled& column : columns) column.from += size_t(range->last - range->first) * column.to.row;
            continue;
        }
        each_run(in, *range, [&](int64_t at, int64_t step, int64_t count, int64_t) {
            for (int64_t done = 0, some; done < count; done += some) {
                some = std::min(TOGETHER, count - done);
                for (auto& [to, from] : columns) {
                    copy_run(to.at(at + done * step), to.stride * size_t(step), from, to.row, to.row, some);
                    from += size_t(some) * to.row;
                }
            }
        });
    }
}

// Read from a place in an open file; how many bytes there were, negative where that fails.
inline int64_t read_at(int file, char* to, size_t n, int64_t offset) {
#if defined(_WIN32)
    static std::mutex seeking;  // the file has one position for all threads
    const std::lock_guard held(seeking);
    if (_lseeki64(file, offset, SEEK_SET) < 0) return -1;
    return _read(file, to, unsigned(std::min<size_t>(n, 1 << 30)));
#else
    return pread(file, to, n, off_t(offset));
#endif
}

// Reads from a place in an open file until that is done; how many bytes there were, fewer where it ends or fails.
inline size_t read_all(int file, char* to, size_t n, int64_t offset) {
    size_t got = 0;
    while (got < n) {
        const int64_t count = read_at(file, to + got, n - got, offset + int64_t(got));
        if (count <= 0) break;
        got += size_t(count);
    }
    return got;
}

// Rows that follow each other both in their file and in memory are read at once, but no more bytes than stay in the
// cache until they have got their checksums.
constexpr size_t READ_AT_ONCE = 256 << 10;

// Fills row places[i] of `out` from offsets[i] of the open file files[i]. The first i for which there was not enough to
// read (-1: none); the CRC-32 of what was read, 0 there.
inline int64_t read_rows(const int64_t* files, const int64_t* offsets, const int64_t* places, int64_t n,
                         const Column& out, uint32_t* sums) {
    const auto follows = [&](int64_t i) {
        return out.stride == out.row && places[i] == places[i - 1] + 1 && files[i] == files[i - 1] &&
               offsets[i] == offsets[i - 1] + int64_t(out.row);
    };
    int64_t failed = -1;
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && size_t(end + 1 - i) * out.row <= READ_AT_ONCE && follows(end);) ++end;
        char* const to = out.at(places[i]);
        const size_t got = read_all(int(files[i]), to, size_t(end - i) * out.row, offsets[i]);
        for (int64_t j = i; j < end; ++j) {
            const bool whole = size_t(j + 1 - i) * out.row <= got;
            if (!whole && failed < 0) failed = j;
            sums[j] = whole ? crc32(out.at(places[j]), out.row) : 0;
        }
    }
    return failed;
}

// Fills the sizes[i] bytes at places[i] of `out` from offsets[i] of the open file files[i]; returns as `read_rows`.
inline int64_t read_spans(const int64_t* files, const int64_t* offsets, const int64_t* sizes, const int64_t* places,
                          int64_t n, char* out, uint32_t* sums) {
    int64_t failed = -1;
    for (int64_t i = 0; i < n; ++i) {
        const size_t size = size_t(sizes[i]);
        const bool whole = read_all(int(files[i]), out + places[i], size, offsets[i]) == size;
        if (!whole && failed < 0) failed = i;
        sums[i] = whole ? crc32(out + places[i], size) : 0;
    }
    return failed;
}

// What to read of a field: its number among the places of a file, the bytes from row to row there, how many steps
// further down its rows are, its place in what is kept of a row, and its number among the checksums; -1 for neither.
struct FieldPlan {
    int64_t place, stride, later, kept, sum;
};
static_assert(sizeof(FieldPlan) == 5 * sizeof(int64_t));

// The rows of a draw: the file of each (negative: of none, and passed over), its number there, its place in the batch.
struct Wanted {
    const int64_t *which, *rows, *targets;
    int64_t n;
};

// Where everything is in files, `columns` numbers each: descriptor, rows of a step, and where fields begin, the table
// of checksums first, then what has none. `kept` has rows of some of them: their checksums, then other fields. Of those
// in memory `held` has each field.
struct Files {
    const int64_t* numbers;
    int64_t columns;
    std::vector<Column> kept;
    std::vector<std::vector<Column>> held;

    const int64_t* at(int64_t file) const { return numbers + file * columns; }
    size_t sums() const { return size_t(columns - 4); }
};

// Fills a row of each field of `outs` for every row that is wanted, file by file; returns the first field and row that
// could not be read or does not match its checksum, or -1 and -1.
inline std::pair<int64_t, int64_t> read_fields(const Files& in, const Wanted& wanted, const FieldPlan* fields,
                                               const std::vector<Column>& outs) {
    constexpr int64_t AHEAD = 16;
    std::vector<int64_t> files(size_t(wanted.n)), offsets(files), numbers(files);
    std::vector<uint32_t> found(files.size()), tables[2];
    std::iota(numbers.begin(), numbers.end(), 0);
    const auto row = [&](int64_t i, int64_t later) { return wanted.rows[i] + later * in.at(wanted.which[i])[1]; };
    for (int64_t i = 0, end; i < wanted.n; i = end) {
        for (end = i + 1; end < wanted.n && wanted.which[end] == wanted.which[i];) ++end;
        if (wanted.which[i] < 0) continue;
        const int64_t n = end - i, *const file = in.at(wanted.which[i]), *const targets = wanted.targets + i;
        const Column& kept = in.kept[size_t(wanted.which[i])];
        const std::vector<Column>& held = in.held[size_t(wanted.which[i])];
        const auto copy = [&](const Column& from, size_t at, int64_t later, const Column& out) {
            const auto source = [&](int64_t k) { return from.at(row(i + k, later)) + at; };
            for (int64_t k = 0; k < n; ++k) {
                if (k + 4 < n) prefetch_row(source(k + 4), out.row);
                copy_row(out.at(targets[k]), source(k), out.row);
            }
        };
        const auto read = [&](const FieldPlan& field, const int64_t* places, const Column& out) {
            for (int64_t k = 0; k < n; ++k)
                offsets[size_t(k)] = file[2 + field.place] + row(i + k, field.later) * field.stride;
            return read_rows(files.data(), offsets.data(), places, n, out, found.data());
        };
        std::fill_n(files.begin(), n, file[0]);
        for (int64_t k = end; k < std::min(wanted.n, end + AHEAD); ++k)  // while this file's rows are read
            if (wanted.which[k] >= 0 && in.kept[size_t(wanted.which[k])].data)
                for (int64_t later = 0; later < 2; ++later) {
                    const Column& next = in.kept[size_t(wanted.which[k])];
                    prefetch_row(next.at(row(k, later)), next.row);
                }
        bool known[2] = {};
        for (size_t j = 0; j < outs.size(); ++j) {
            const FieldPlan& field = fields[j];
            if (!held.empty() || (kept.data && field.kept >= 0)) {
                copy(held.empty() ? kept : held[j], held.empty() ? size_t(field.kept) : 0, field.later, outs[j]);
                continue;
            }
            auto& table = tables[field.later];
            int64_t failed = -1;
            if (field.sum >= 0 && !kept.data && !std::exchange(known[field.later], true)) {
                const size_t size = 4 * in.sums();
                table.resize(files.size() * in.sums());
                const Column out{reinterpret_cast<char*>(table.data()), size, size};
                failed = read({0, int64_t(size), field.later, 0, 0}, numbers.data(), out);
            }
            if (failed < 0) failed = read(field, targets, outs[j]);
            for (int64_t k = 0; field.sum >= 0 && k < (failed < 0 ? n : failed); ++k) {
                const char* const sums = kept.data ? kept.at(row(i + k, field.later))
                                                   : reinterpret_cast<const char*>(&table[size_t(k) * in.sums()]);
                if (std::memcmp(sums + 4 * field.sum, &found[size_t(k)], 4)) failed = k;
            }
            if (failed >= 0) return {int64_t(j), i + failed};
        }
    }
    return {-1, -1};
}

// Finds the files of samples, which are rows of all files one after the other: before[f] come before file f. For each,
// by file and row: its number among the samples, the place of its file in `found`, and its row there.
inline std::vector<int64_t> sort_rows(const int64_t* before, int64_t files, const int64_t* samples, int64_t n,
                                      int64_t* order, int64_t* which, int64_t* rows) {
    std::vector<std::pair<int64_t, int64_t>> sorted(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) sorted[size_t(i)] = {samples[i], i};
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> found;
    const int64_t* next = before;
    for (const auto& [sample, number] : sorted) {
        if (found.empty() || sample >= *next) {
            next = std::upper_bound(next, before + files + 1, sample);
            found.push_back(next - before - 1);
        }
        *order++ = number, *which++ = int64_t(found.size()) - 1, *rows++ = sample - next[-1];
    }
    return found;
}

}  // namespace relive
