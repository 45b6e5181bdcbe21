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

// The rewards of a ring, to be summed over windows; `T` is their dtype.
template <typename T>
class Rewards {
public:
    Rewards(const Rows& ring, const Column& column, const double* gammas, int64_t longest)
        : ring_(ring), column_(column), gammas_(gammas), width_(column.row / sizeof(T)), longest_(longest) {}

    void prefetch(int64_t row) const {
        const int64_t near = std::min(ring_.together_from(row), longest_);
        prefetch_row(column_.at(row), size_t(near) * column_.stride);
        // Steps that lie apart have lines of their own.
        for (int64_t k = 1; near == 1 && k < std::min<int64_t>(longest_, 4); ++k)
            RELIVE_PREFETCH(column_.at(std::min(row + k * ring_.lanes, ring_.zero_row())));
    }

    // The sum over `steps` rows from a storage row on; `out` has room for the numbers of one reward.
    void sum(int64_t row, int64_t steps, T* out) const {
        for (size_t w = 0; w < width_; ++w) {
            double total = double(numbers(row)[w]);
            int64_t k = 1, at = row;
            while (k < steps) {
                const int64_t near = std::min(steps - k, ring_.together_from(at) - 1);
                for (int64_t i = 0; i < near; ++i) total += gammas_[k++] * double(numbers(++at)[w]);
                if (k == steps) break;
                at = ring_.next_row(at);
                total += gammas_[k++] * double(numbers(at)[w]);
            }
            out[w] = T(total);
        }
    }

private:
    const Rows& ring_;
    const Column& column_;
    const double* gammas_;
    size_t width_;
    int64_t longest_;

    const T* numbers(int64_t row) const { return reinterpret_cast<const T*>(column_.at(row)); }
};

// Sums over steps[i] rows of a column from the storage rows starts[i] on, `width` numbers a row.
template <typename T>
void fold(const Rows& ring, const Column& column, const int64_t* starts, const int32_t* steps, int64_t n,
          const double* gammas, int64_t count, T* out) {
    constexpr int64_t DEEP = 32;
    const Rewards<T> rewards(ring, column, gammas, count - 1);
    const size_t width = column.row / sizeof(T);
    for (int64_t i = 0; i < n; ++i) {
        if (i + DEEP < n) rewards.prefetch(starts[i + DEEP]);
        rewards.sum(starts[i], steps[i], out + size_t(i) * width);
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
