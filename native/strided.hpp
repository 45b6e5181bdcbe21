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

#if defined(__SSE2__)
// Eight bytes each of sixteen pixels, `step` apart: their first bytes to out[0], their second ones to out[1], and so
// on.
inline void transpose(const char* from, ptrdiff_t step, __m128i* out) {
    __m128i even[8], odd[8];
    const auto load = [=](int pixel) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + pixel * step)); };
    for (int i = 0; i < 8; ++i) even[i] = _mm_unpacklo_epi8(load(i), load(i + 8));  // pixels i and i + 8
    for (int i = 0; i < 4; ++i) {
        odd[2 * i] = _mm_unpacklo_epi8(even[i], even[i + 4]);  // pixels i, i + 4, i + 8, i + 12; bytes 0 to 3
        odd[2 * i + 1] = _mm_unpackhi_epi8(even[i], even[i + 4]);
    }
    for (int i = 0; i < 2; ++i)
        for (int half = 0; half < 2; ++half) {
            even[4 * i + 2 * half] = _mm_unpacklo_epi8(odd[2 * i + half], odd[2 * i + 4 + half]);
            even[4 * i + 2 * half + 1] = _mm_unpackhi_epi8(odd[2 * i + half], odd[2 * i + 4 + half]);
        }
    for (int pair = 0; pair < 4; ++pair) {
        out[2 * pair] = _mm_unpacklo_epi8(even[pair], even[pair + 4]);
        out[2 * pair + 1] = _mm_unpackhi_epi8(even[pair], even[pair + 4]);
    }
}

// Sixteen pixels of four bytes, in a third of the time.
inline void transpose_fours(const char* from, __m128i* out) {
    const __m128i low = _mm_set1_epi16(0xFF);
    const auto even = [low](__m128i one, __m128i other) {
        return _mm_packus_epi16(_mm_and_si128(one, low), _mm_and_si128(other, low));
    };
    const auto odd = [](__m128i one, __m128i other) {
        return _mm_packus_epi16(_mm_srli_epi16(one, 8), _mm_srli_epi16(other, 8));
    };
    __m128i part[4];
    for (int k = 0; k < 4; ++k) part[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + k);
    const __m128i even_low = even(part[0], part[1]), even_high = even(part[2], part[3]);
    const __m128i odd_low = odd(part[0], part[1]), odd_high = odd(part[2], part[3]);
    out[0] = even(even_low, even_high);
    out[1] = even(odd_low, odd_high);
    out[2] = odd(even_low, even_high);
    out[3] = odd(odd_low, odd_high);
}
#endif

// Frames of n elements each, one after the other, out of n pixels that have an element of every frame.
inline void split(const char* from, ptrdiff_t n, ptrdiff_t frames, size_t size, char* to) {
    const ptrdiff_t step = frames * ptrdiff_t(size);
    ptrdiff_t done = 0;
#if defined(__SSE2__)
    constexpr ptrdiff_t WIDE = 8, PIXELS = 16;
    const ptrdiff_t beyond = size == 1 ? (frames + WIDE - 1) / WIDE * WIDE : n * step;  // of the last pixel's begin
    for (; (done + PIXELS - 1) * step + beyond <= n * step; done += PIXELS)
        for (ptrdiff_t k = 0; k < frames; k += WIDE) {
            __m128i part[WIDE];
            if (frames == 4)
                transpose_fours(from + done * step, part);
            else
                transpose(from + done * step + k, step, part);
            for (ptrdiff_t i = 0; i < std::min(WIDE, frames - k); ++i)
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (k + i) * n + done), part[i]);
        }
#endif
    const ptrdiff_t together = std::max<ptrdiff_t>(ptrdiff_t(1 << 14) / step, 1);  // they stay in the nearest cache
    for (; done < n; done += together)
        for (ptrdiff_t k = 0; k < frames; ++k)
            copy_line(from + done * step + k * ptrdiff_t(size), step, std::min(together, n - done), size,
                      to + (k * n + done) * ptrdiff_t(size));
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
    const ptrdiff_t size = ptrdiff_t(block.size), frames = last > 0 ? block.lengths[last - 1] : 1;
    const bool pixels = last > 0 && block.steps[last - 1] == size && block.steps[last] == frames * size;
    const int outer = pixels ? last - 1 : last;
    const ptrdiff_t n = block.lengths[last];
    ptrdiff_t at[MOST_AXES] = {};
    const char* from = block.data;
    for (;;) {
        if (pixels)
            detail::split(from, n, frames, block.size, to);
        else
            detail::copy_line(from, block.steps[last], n, block.size, to);
        to += size_t(pixels ? frames * n : n) * block.size;
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
