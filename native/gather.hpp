// Copies chosen rows of many columns. Rows of a large buffer are misses; what counts is how many are in flight
// together.
#pragma once

#include <cstdint>

#include "copy.hpp"
#include "kernels.hpp"

namespace relive {

// The job is a copy: what is written could else be the job itself, which would be read again at each row.
template <typename Copy>
static inline void copy_rows(const Job job, int64_t begin, int64_t end, Copy copy) {
    char* to = job.to + size_t(begin) * job.row;
    for (int64_t i = begin; i < end; ++i, to += job.row) copy(to, job.from + size_t(job.rows[i]) * job.stride, job.row);
}

// Calls body(copy) for rows of this size, which is looked at once for several rows, so that each loop is as tight as if
// it were written for that size.
template <typename Body>
static inline void with_copy_of(size_t row, Body body) {
    switch (row) {
        case 1:
            return body([](char* to, const char* from, size_t) { copy_block<1>(to, from); });
        case 4:
            return body([](char* to, const char* from, size_t) { copy_block<4>(to, from); });
        case 8:
            return body([](char* to, const char* from, size_t) { copy_block<8>(to, from); });
        case 16:
            return body([](char* to, const char* from, size_t) { copy_block<16>(to, from); });
        case 24:
            return body([](char* to, const char* from, size_t) { copy_block<24>(to, from); });
        default:
            break;
    }
    if (row < 16) return body(copy_row);
    if (row < 32) return body(copy_head<16>);
    if (row < 64) return body(copy_head<32>);
    if (row < 128) return body(copy_head<64>);
    body(copy_row);
}

static inline void copy_rows(const Job& job, int64_t begin, int64_t end) {
    with_copy_of(job.row, [&](auto copy) { copy_rows(job, begin, end, copy); });
}

template <typename Copy>
static inline void copy_strip(const Strip& strip, int64_t n, Copy copy) {
    const char* from = strip.from;
    char* to = strip.to;
    for (int64_t i = 0; i < n; ++i, from += strip.from_step, to += strip.to_step) copy(to, from, strip.row);
}

static inline void copy_strip(const Strip& strip, int64_t n) {
    if (strip.row == strip.from_step && strip.row == strip.to_step) {
        if (n > 0) copy_bytes(strip.to, strip.from, strip.row * size_t(n));
        return;
    }
    with_copy_of(strip.row, [&](auto copy) { copy_strip(strip, n, copy); });
}

static inline void gather(const Job* jobs, size_t count, const Fetch* fetches, size_t spans, int64_t n) {
    size_t bytes = 0;
    for (size_t c = 0; c < count; ++c) bytes += jobs[c].row;
    // Of small rows many are on their way together, while as many before them are copied, column by column.
    const int64_t together = bytes <= SMALL ? 32 : 4, ahead = bytes <= SMALL ? 32 : 16;
    const size_t streamed = bytes * size_t(n) < BEYOND_CACHES ? SIZE_MAX : STREAMED;
    for (int64_t begin = -ahead; begin < n; begin += together) {
        const int64_t fetch = begin + ahead, fetched = fetch + together < n ? fetch + together : n;
        for (size_t f = 0; f < spans; ++f) {
            const Fetch of = fetches[f];
            for (int64_t i = fetch; i < fetched; ++i) prefetch_row(of.from + size_t(of.rows[i]) * of.stride, of.bytes);
        }
        if (begin < 0) continue;
        const int64_t end = begin + together < n ? begin + together : n;
        for (size_t c = 0; c < count; ++c)
            if (jobs[c].row >= streamed)
                copy_rows(jobs[c], begin, end, stream_row);
            else
                copy_rows(jobs[c], begin, end);
    }
    if (streamed == STREAMED) settle_streams();
}

}  // namespace relive
