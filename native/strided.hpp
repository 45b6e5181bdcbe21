// Elements that do not lie one after the other. Knows bytes and integers, no Python object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels.hpp"

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
    std::vector<char*> parts(pixels ? size_t(frames) : 0);
    ptrdiff_t at[MOST_AXES] = {};
    const char* from = block.data;
    for (;;) {
        for (char*& part : parts) {
            part = to;
            to += n * size;
        }
        if (pixels) {
            chosen().split({from, n, frames, block.size}, parts.data());
        } else {
            detail::copy_line(from, block.steps[last], n, block.size, to);
            to += n * size;
        }
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
