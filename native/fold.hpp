// Discounted sums of rewards. Knows bytes and integers, no Python object.
#pragma once

#include <stdexcept>

#include "rows.hpp"

namespace relive {

// Refuse windows longer than there are discounts.
inline void check_steps(const int32_t* steps, int64_t n, int64_t count) {
    for (int64_t i = 0; i < n; ++i)
        if (steps[i] < 0 || steps[i] >= count)
            throw std::out_of_range("relive._ring._native: a window that is too long");
}

// Sums over steps[i] rows of a column from the storage rows starts[i] on, `width` numbers a row.
template <typename T>
void fold(const Rows& ring, const Column& column, const int64_t* starts, const int32_t* steps, int64_t n,
          const double* gammas, int64_t count, T* out) {
    constexpr int64_t DEEP = 32;
    const size_t width = column.row / sizeof(T);
    const int64_t ahead = std::min<int64_t>(count - 1, 4), last = ring.zero_row();
    const auto value = [&](int64_t row, size_t w) { return double(reinterpret_cast<const T*>(column.at(row))[w]); };
    for (int64_t i = 0; i < n; ++i) {
        if (i + DEEP < n)
            for (int64_t k = 0; k < ahead; ++k)
                RELIVE_PREFETCH(column.at(std::min(starts[i + DEEP] + k * ring.lanes, last)));
        for (size_t w = 0; w < width; ++w) {
            double total = value(starts[i], w);
            int64_t row = starts[i];
            for (int32_t k = 1; k < steps[i]; ++k) {
                row = ring.next_row(row);
                total += gammas[k] * value(row, w);
            }
            out[size_t(i) * width + w] = T(total);
        }
    }
}

// The sizes of folded sequences: `count` rewards an item, of which `length` begin a window; `width` numbers each.
struct Sheet {
    int64_t items, length, count, width;
    bool time_major;
};

// The reward at position i is what came before the observation there, so a window at i begins with the next one.
template <typename T>
void fold_sequences(const T* rewards, const int32_t* steps, const double* gammas, const Sheet& sheet, T* out) {
    const int64_t later = sheet.time_major ? sheet.items * sheet.width : sheet.width;  // from one position to the next
    for (int64_t b = 0; b < sheet.items; ++b)
        for (int64_t i = 0; i < sheet.length; ++i) {
            const int64_t at = sheet.time_major ? i * sheet.items + b : b * sheet.length + i;
            const int64_t begin = sheet.time_major ? (i + 1) * sheet.items + b : b * sheet.count + i + 1;
            for (int64_t w = 0; w < sheet.width; ++w) {
                double total = 0;
                for (int32_t k = 0; k < steps[at]; ++k)
                    total += gammas[k] * double(rewards[begin * sheet.width + k * later + w]);
                out[at * sheet.width + w] = T(total);
            }
        }
}

}  // namespace relive
