// The values of several steps in a row, as items of chunks of actions show them. Knows bytes and integers, no Python
// object.
#pragma once

#include <cstring>

#include "fold.hpp"
#include "kernels.hpp"

namespace relive {

// A column at each step of windows of at most `longest` steps; zeros behind a window.
class Chunks {
public:
    Chunks(const Rows& ring, const Column& column, int64_t longest)
        : ring_(ring), column_(column), longest_(longest), kernels_(chosen()) {}

    // Bytes of an item.
    size_t bytes() const { return column_.row * size_t(longest_); }

    // Of a window of whose rows `near` lie together.
    void prefetch(int64_t row, int64_t near) const {
        prefetch_row(column_.at(row), size_t(std::min(near, longest_) - 1) * column_.stride + column_.row);
    }

    // The item whose window has `steps` steps from a storage row on.
    void copy(int64_t row, int64_t steps, char* to) const {
        char* const end = to + bytes();
        for (int64_t left = steps; left > 0;) {
            const int64_t near = std::min(left, ring_.together_from(row));
            const size_t bytes = column_.row * size_t(near);
            if (column_.stride == column_.row)
                copy_row(to, column_.at(row), bytes);
            else
                kernels_.copy_strip({column_.at(row), to, column_.row, column_.stride, column_.row}, near);
            to += bytes;
            left -= near;
            if (left) row = ring_.next_row(row + near - 1);
        }
        if (to != end) std::memset(to, 0, size_t(end - to));
    }

private:
    const Rows& ring_;
    const Column& column_;
    int64_t longest_;
    const Kernels& kernels_;
};

}  // namespace relive
