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
        : next_(ring.next()),
          apart_(ring.lanes),
          column_(column),
          gammas_(gammas),
          width_(column.row / sizeof(T)),
          step_(column.stride / sizeof(T)),
          longest_(longest) {}

    // Fetch the rewards of a window, of whose rows `near` lie together.
    RELIVE_INLINE void prefetch(int64_t row, int64_t near) const {
        const char* const from = column_.at(row);
        prefetch_row(from, size_t(std::min(near, longest_)) * column_.stride);
        // Steps that lie apart have lines of their own.
        for (int64_t k = 1; near == 1 && k < std::min<int64_t>(longest_, 4); ++k)
            RELIVE_PREFETCH(column_.at(std::min(row + k * apart_, next_.end)));
    }

    // The sum over `steps` rows from a storage row on, which may lie `together`; `out` has room for the numbers of one
    // reward.
    RELIVE_INLINE void sum(int64_t row, int64_t steps, bool together, T* out) const {
        if (!together || width_ != 1) return sums(row, steps, out);
        const T* from = numbers(row);
        double total = double(*from);
        for (int64_t k = 1; k < steps; ++k) total += gammas_[k] * double(*(from += step_));
        *out = T(total);
    }

private:
    // In registers, whatever a loop writes.
    const Places::Next next_;
    const int64_t apart_;
    const Column column_;
    const double* const gammas_;
    const size_t width_, step_;
    const int64_t longest_;

    const T* numbers(int64_t row) const { return reinterpret_cast<const T*>(column_.at(row)); }
    void sums(int64_t row, int64_t steps, T* out) const {
        for (size_t w = 0; w < width_; ++w) {
            double total = double(numbers(row)[w]);
            for (int64_t k = 1, at = row; k < steps; ++k) total += gammas_[k] * double(numbers(at = next_(at))[w]);
            out[w] = T(total);
        }
    }
};

// Sums over steps[i] rows of a column from the storage rows starts[i] on, `width` numbers a row.
template <typename T>
void fold(const Rows& ring, const Column& column, const int64_t* starts, const int32_t* steps, int64_t n,
          const double* gammas, int64_t count, T* out) {
    constexpr int64_t DEEP = 32;
    const Rewards<T> rewards(ring, column, gammas, count - 1);
    const size_t width = column.row / sizeof(T);
    for (int64_t i = 0; i < n; ++i) {
        if (i + DEEP < n) rewards.prefetch(starts[i + DEEP], ring.together_from(starts[i + DEEP]));
        rewards.sum(starts[i], steps[i], ring.together_from(starts[i]) >= steps[i], out + size_t(i) * width);
    }
}

// The rewards of one sequence: `width` numbers each, `later` numbers from one position to the next.
template <typename T>
struct Series {
    const T* rewards;
    int64_t later, width;

    // Sums of `steps(i)` rewards from each of the first `length` positions on, `further` numbers from one to the next.
    // The reward at position i is what came before the observation there, so a window at i begins with the next one.
    template <typename Steps>
    void fold(int64_t length, Steps steps, const double* gammas, T* out, int64_t further) const {
        for (int64_t i = 0; i < length; ++i) {
            const int64_t n = steps(i);
            for (int64_t w = 0; w < width; ++w) {
                double total = 0;
                for (int64_t k = 0; k < n; ++k) total += gammas[k] * double(rewards[(i + 1 + k) * later + w]);
                out[i * further + w] = T(total);
            }
        }
    }
};

// The sizes of folded sequences: `count` rewards an item, of which `length` begin a window; `width` numbers each.
struct Sheet {
    int64_t items, length, count, width;
    bool time_major;

    // Numbers from the first item to item `b`, and from one position to the next, of arrays of so many positions.
    int64_t begin(int64_t b, int64_t positions) const { return b * width * (time_major ? 1 : positions); }
    int64_t later() const { return width * (time_major ? items : 1); }
};

template <typename T>
void fold_sequences(const T* rewards, const int32_t* steps, const double* gammas, const Sheet& sheet, T* out) {
    for (int64_t b = 0; b < sheet.items; ++b) {
        const auto steps_at = [&](int64_t i) {
            return steps[sheet.time_major ? i * sheet.items + b : b * sheet.length + i];
        };
        const Series<T> series{rewards + sheet.begin(b, sheet.count), sheet.later(), sheet.width};
        series.fold(sheet.length, steps_at, gammas, out + sheet.begin(b, sheet.length), sheet.later());
    }
}

}  // namespace relive
