// Elements that do not lie one after the other. Knows bytes and integers, no Python object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace relive {

constexpr int MOST_AXES = 64;  // of NumPy's arrays

// A block of elements of `size` bytes anywhere in memory.
struct Strided {
    Strided(const char* from, size_t of) : data(from), size(of) {}

    const char* data;
    size_t size;
    int axes = 0;
    ptrdiff_t lengths[MOST_AXES], steps[MOST_AXES];  // bytes from one to the next

    // Add a last axis. An axis that is contiguous with the one before is merged into it.
    void add(ptrdiff_t length, ptrdiff_t step) {
        if (length == 1) return;
        if (axes && steps[axes - 1] == length * step) {
            lengths[axes - 1] *= length;
            steps[axes - 1] = step;
        } else {
            lengths[axes] = length;
            steps[axes++] = step;
        }
    }

    bool contiguous() const { return axes == 0 || (axes == 1 && steps[0] == ptrdiff_t(size)); }
};

namespace detail {

template <size_t SIZE>
void copy_line(const char* from, ptrdiff_t step, ptrdiff_t n, char* to) {
    for (ptrdiff_t i = 0; i < n; ++i) std::memcpy(to + size_t(i) * SIZE, from + i * step, SIZE);
}

inline void copy_line(const char* from, ptrdiff_t step, ptrdiff_t n, size_t size, char* to) {
    if (step == ptrdiff_t(size)) {
        std::memcpy(to, from, size_t(n) * size);
        return;
    }
    switch (size) {
        case 1:
            return copy_line<1>(from, step, n, to);
        case 2:
            return copy_line<2>(from, step, n, to);
        case 4:
            return copy_line<4>(from, step, n, to);
        case 8:
            return copy_line<8>(from, step, n, to);
        default:
            return copy_line<16>(from, step, n, to);
    }
}

// Four frames of n bytes out of n pixels of four.
inline void split_in_four(const char* from, ptrdiff_t n, char* to) {
    ptrdiff_t i = 0;
#if defined(__SSE2__)
    const __m128i low = _mm_set1_epi16(0xFF);
    const auto even = [low](__m128i one, __m128i other) {
        return _mm_packus_epi16(_mm_and_si128(one, low), _mm_and_si128(other, low));
    };
    const auto odd = [](__m128i one, __m128i other) {
        return _mm_packus_epi16(_mm_srli_epi16(one, 8), _mm_srli_epi16(other, 8));
    };
    for (; i + 16 <= n; i += 16) {
        const auto* pixels = reinterpret_cast<const __m128i*>(from + 4 * i);
        __m128i part[4];
        for (int k = 0; k < 4; ++k) part[k] = _mm_loadu_si128(pixels + k);
        const __m128i even_low = even(part[0], part[1]), even_high = even(part[2], part[3]);
        const __m128i odd_low = odd(part[0], part[1]), odd_high = odd(part[2], part[3]);
        const __m128i frames[] = {even(even_low, even_high), even(odd_low, odd_high), odd(even_low, even_high),
                                  odd(odd_low, odd_high)};
        for (int k = 0; k < 4; ++k) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + k * n + i), frames[k]);
    }
#endif
    for (; i < n; ++i)
        for (int k = 0; k < 4; ++k) to[k * n + i] = from[4 * i + k];
}

}  // namespace detail

// Copies them one after the other, those of the last axis first.
inline void gather(const Strided& block, char* to) {
    if (!block.axes) {
        std::memcpy(to, block.data, block.size);
        return;
    }
    const int last = block.axes - 1;
    // Frames behind, 84 x 84 x 4 bytes for example, one of them after the other.
    const bool pixels = block.size == 1 && last > 0 && block.lengths[last - 1] == 4 && block.steps[last - 1] == 1 &&
                        block.steps[last] == 4;
    const int outer = pixels ? last - 1 : last;
    const ptrdiff_t n = block.lengths[last];
    ptrdiff_t at[MOST_AXES] = {};
    const char* from = block.data;
    for (;;) {
        if (pixels)
            detail::split_in_four(from, n, to);
        else
            detail::copy_line(from, block.steps[last], n, block.size, to);
        to += size_t(pixels ? 4 * n : n) * block.size;
        int axis = outer - 1;
        for (; axis >= 0; --axis) {
            from += block.steps[axis];
            if (++at[axis] < block.lengths[axis]) break;
            from -= block.lengths[axis] * block.steps[axis];
            at[axis] = 0;
        }
        if (axis < 0) return;
    }
}

// Turns round the bytes of each number.
inline void swap_bytes(char* numbers, size_t size, int64_t n) {
    for (int64_t i = 0; i < n; ++i, numbers += size) std::reverse(numbers, numbers + size);
}

}  // namespace relive
