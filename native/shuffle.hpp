// The order of uniforms: whose items an epoch goes through. Knows numbers, no Python object.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace relive {

// Put the items in the order of their numbers in [0, 1), equal ones as they come. Of each number its first bits and its
// place make one integer. By a few bits more than the items have these are sorted without a comparison, byte by byte.
inline void shuffle(const int64_t* items, const double* numbers, int64_t n, int64_t* out) {
    const int bits = std::bit_width(uint64_t(n)), passes = std::min(bits + 11, 63 - bits) / 8, low = 63 - 8 * passes;
    const uint64_t places = (uint64_t(1) << bits) - 1;
    const double scale = double(uint64_t(1) << (63 - bits));
    const auto room = std::make_unique_for_overwrite<uint64_t[]>(size_t(n));
    uint64_t *keys = room.get(), *other = reinterpret_cast<uint64_t*>(out);
    std::vector<int64_t> begins(size_t(passes) << 8);
    for (int64_t i = 0; i < n; ++i) {
        keys[i] = uint64_t(numbers[i] * scale) << bits | uint64_t(i);
        for (int pass = 0; pass < passes; ++pass) ++begins[size_t(pass << 8 | (keys[i] >> (low + 8 * pass) & 255))];
    }
    for (int pass = 0; pass < passes; ++pass, std::swap(keys, other)) {
        int64_t *const begin = begins.data() + (pass << 8), sum = 0;
        for (int byte = 0; byte < 256; ++byte) sum += std::exchange(begin[byte], sum);
        for (int64_t i = 0; i < n; ++i) other[begin[keys[i] >> (low + 8 * pass) & 255]++] = keys[i];
    }
    for (int64_t begin = 0, end = 0; begin < n; begin = end) {
        while (end < n && keys[end] >> low == keys[begin] >> low) ++end;
        if (end - begin == 1) continue;
        std::sort(keys + begin, keys + end, [&](uint64_t a, uint64_t b) {
            if (a >> bits != b >> bits) return a < b;
            const double x = numbers[a & places], y = numbers[b & places];  // which may differ in later bits
            return x != y ? x < y : a < b;
        });
    }
    for (int64_t i = 0; i < n; ++i) out[i] = items[keys[i] & places];
}

}  // namespace relive
