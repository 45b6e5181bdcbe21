// Copies chosen rows of many columns. Rows of a large buffer are misses; what counts is how many are in flight
// together.
#pragma once

#include <cstdint>

#include "copy.hpp"
#include "kernels.hpp"

namespace relive {

template <typename Copy>
static inline void copy_rows(const Job& job, int64_t begin, int64_t end, Copy copy) {
    for (int64_t i = begin; i < end; ++i)
        copy(job.to + size_t(i) * job.row, job.from + size_t(job.rows[i]) * job.stride, job.row);
}

// The size is looked at once for several rows, so that each loop is as tight as if it were written for that size.
static inline void copy_rows(const Job& job, int64_t begin, int64_t end) {
    switch (job.row) {
        case 1:
            return copy_rows(job, begin, end, [](char* to, const char* from, size_t) { *to = *from; });
        case 4:
            return copy_rows(job, begin, end, [](char* to, const char* from, size_t) { copy_block<4>(to, from); });
        case 8:
            return copy_rows(job, begin, end, [](char* to, const char* from, size_t) { copy_block<8>(to, from); });
        default:
            break;
    }
    if (job.row < 16) return copy_rows(job, begin, end, copy_row);
    if (job.row < 32) return copy_rows(job, begin, end, copy_head<16>);
    if (job.row < 64) return copy_rows(job, begin, end, copy_head<32>);
    if (job.row < 128) return copy_rows(job, begin, end, copy_head<64>);
    copy_rows(job, begin, end, copy_row);
}

template <typename Copy>
static inline void copy_run(const Job& job, int64_t begin, int64_t end, Copy copy) {
    const char* from = job.from + size_t(job.rows[begin]) * job.stride;
    for (int64_t i = begin; i < end; ++i, from += job.stride) copy(job.to + size_t(i) * job.row, from, job.row);
}

// Rows that follow each other.
static inline void copy_run(const Job& job, int64_t begin, int64_t end) {
    if (job.row == job.stride) {
        std::memcpy(job.to + size_t(begin) * job.row, job.from + size_t(job.rows[begin]) * job.stride,
                    size_t(end - begin) * job.row);
        return;
    }
    switch (job.row) {
        case 4:
            return copy_run(job, begin, end, [](char* to, const char* from, size_t) { copy_block<4>(to, from); });
        case 8:
            return copy_run(job, begin, end, [](char* to, const char* from, size_t) { copy_block<8>(to, from); });
        case 24:
            return copy_run(job, begin, end, [](char* to, const char* from, size_t) { copy_block<24>(to, from); });
        default:
            return copy_run(job, begin, end, copy_row);
    }
}

// Sequences of rows: within each the hardware's prefetcher sees what is wanted next, and only its start is a surprise.
static inline void gather_runs(const Job* jobs, size_t count, const Fetch* fetches, size_t spans, int64_t n) {
    constexpr int64_t LONGEST = 32;
    const int64_t* rows = jobs[0].rows;
    for (int64_t begin = 0, end; begin < n; begin = end) {
        const int64_t most = begin + LONGEST < n ? begin + LONGEST : n;
        for (end = begin + 1; end < most && rows[end] == rows[end - 1] + 1; ++end);
        for (size_t f = 0; f < spans && end < n; ++f) {
            const char* next = fetches[f].from + size_t(rows[end]) * fetches[f].stride;
            for (size_t offset = 0; offset < 1024; offset += 64) RELIVE_PREFETCH(next + offset);
        }
        for (size_t c = 0; c < count; ++c) copy_run(jobs[c], begin, end);
    }
}

static inline bool are_runs(const Job* jobs, size_t count, int64_t n) {
    const int64_t* rows = jobs[0].rows;
    for (size_t c = 1; c < count; ++c)
        if (jobs[c].rows != rows) return false;
    return n >= 64 && rows[8] == rows[4] + 4 && rows[16] == rows[8] + 8;
}

static inline void gather(const Job* jobs, size_t count, const Fetch* fetches, size_t spans, int64_t n) {
    if (count && are_runs(jobs, count, n)) return gather_runs(jobs, count, fetches, spans, n);
    constexpr int64_t TOGETHER = 4, AHEAD = 16;
    for (int64_t begin = -AHEAD; begin < n; begin += TOGETHER) {
        const int64_t fetch = begin + AHEAD, fetched = fetch + TOGETHER < n ? fetch + TOGETHER : n;
        for (int64_t i = fetch; i < fetched; ++i)
            for (size_t f = 0; f < spans; ++f)
                prefetch_row(fetches[f].from + size_t(fetches[f].rows[i]) * fetches[f].stride, fetches[f].bytes);
        if (begin < 0) continue;
        const int64_t end = begin + TOGETHER < n ? begin + TOGETHER : n;
        for (size_t c = 0; c < count; ++c) copy_rows(jobs[c], begin, end);
    }
}

}  // namespace relive
