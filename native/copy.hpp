// Copies and prefetches of single rows. A call to libc for every 4-byte field would cost more than the copy.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__GNUC__) || defined(__clang__)
#define RELIVE_PREFETCH(address) __builtin_prefetch(address, 0, 3)
#define RELIVE_PREFETCH_WRITE(address) __builtin_prefetch(address, 1, 3)
#else
#define RELIVE_PREFETCH(address) ((void)(address))
#define RELIVE_PREFETCH_WRITE(address) ((void)(address))
#endif

namespace relive {

// Rows up to this size are copied in line, in blocks that overlap at the end instead of a loop over the rest.
constexpr size_t IN_LINE = 512;
// More lines than this of one row are left to the hardware's own prefetcher.
constexpr size_t LINES = 5;

template <size_t N>
static inline void copy_block(char* to, const char* from) {
    std::memcpy(to, from, N);
}

static inline void copy_row(char* to, const char* from, size_t n) {
    if (n >= 64) {
        if (n > IN_LINE) {
            std::memcpy(to, from, n);
            return;
        }
        for (size_t i = 0; i + 64 <= n; i += 64) copy_block<64>(to + i, from + i);
        copy_block<64>(to + n - 64, from + n - 64);
    } else if (n >= 32) {
        copy_block<32>(to, from);
        copy_block<32>(to + n - 32, from + n - 32);
    } else if (n >= 16) {
        copy_block<16>(to, from);
        copy_block<16>(to + n - 16, from + n - 16);
    } else if (n >= 8) {
        copy_block<8>(to, from);
        copy_block<8>(to + n - 8, from + n - 8);
    } else if (n >= 4) {
        copy_block<4>(to, from);
        copy_block<4>(to + n - 4, from + n - 4);
    } else {
        for (size_t i = 0; i < n; ++i) to[i] = from[i];
    }
}

static inline void prefetch_row(const char* row, size_t n) {
    size_t offset = 0;
    for (size_t line = 0; line < LINES && offset < n; ++line, offset += 64) RELIVE_PREFETCH(row + offset);
    if (offset >= n) RELIVE_PREFETCH(row + n - 1);
}

static inline void prefetch_row_for_writing(const char* row, size_t n) {
    size_t offset = 0;
    for (size_t line = 0; line < LINES && offset < n; ++line, offset += 64) RELIVE_PREFETCH_WRITE(row + offset);
    if (offset >= n) RELIVE_PREFETCH_WRITE(row + n - 1);
}

}  // namespace relive
