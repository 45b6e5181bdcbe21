// The order of uniforms: whose items an epoch goes through. Knows numbers, no Python object.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace relive {

// Sort by one byte of each number, which keeps the order of those that have the same. `ends` gets where each byte's
// numbers end.
inline void by_byte(const uint64_t* from, uint64_t* to, int64_t n, int shift, int64_t* ends) {
    std::fill_n(ends, 256, 0);
    for (int64_t i = 0; i < n; ++i) ++ends[from[i] >> shift & 255];
    int64_t sum = 0;
    for (int byte = 0; byte < 256; ++byte) sum += std::exchange(ends[byte], sum);
    for (int64_t i = 0; i < n; ++i) to[ends[from[i] >> shift & 255]++] = from[i];
}

// Put the items in the order of their numbers in [0, 1), equal ones as they come. Of each number its first bits and its
// place make one integer, and these are sorted by three bytes: many by the first one, and then a part that lies in the
// caches at a time. `keys` is room for as many.
inline void shuffle(const int64_t* items, const double* numbers, int64_t n, uint64_t* keys, int64_t* out) {
    const int bits = std::bit_width(uint64_t(n)), low = 39;
    const uint64_t places = (uint64_t(1) << bits) - 1;
    const double scale = double(uint64_t(1) << (63 - bits));
    auto* const parts = reinterpret_cast<uint64_t*>(out);
    for (int64_t i = 0; i < n; ++i) keys[i] = uint64_t(numbers[i] * scale) << bits | uint64_t(i);
    const bool many = n > 1 << 18;
    int64_t ends[256], inner[256];
    if (many) {
        by_byte(keys, parts, n, low + 16, ends);
    } else {
        for (const int byte : {0, 1, 2})
            by_byte(byte == 1 ? parts : keys, byte == 1 ? keys : parts, n, low + 8 * byte, ends);
        ends[0] = n;
    }
    for (int64_t begin = 0, part = 0; begin < n; begin = ends[part++]) {
        uint64_t *const first = parts + begin, *const last = parts + ends[part];
        if (many) {
            by_byte(first, keys, last - first, low, inner);
            by_byte(keys, first, last - first, low + 8, inner);
        }
        for (uint64_t* key = first + 1; key < last; ++key) {
            if ((*key ^ key[-1]) >> low) continue;
            uint64_t* end = key + 1;
            while (end < last && !((*end ^ *key) >> low)) ++end;
            std::sort(key - 1, end, [&](uint64_t a, uint64_t b) {
                if (a >> bits != b >> bits) return a < b;
                const double x = numbers[a & places], y = numbers[b & places];  // which may differ in later bits
                return x != y ? x < y : a < b;
            });
            key = end;
        }
        for (uint64_t* key = first; key < last; ++key) *key = uint64_t(items[*key & places]);
    }
}

}  // namespace relive
