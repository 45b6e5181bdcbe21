// A set of integers that can be drawn from uniformly: a dense list, and where in it each member stands.
#pragma once

#include <cstdint>

namespace relive {

// T is int32 or int64. `order` holds the members first, where[m] is the position of member m, `size` counts them.
template <typename T>
struct Dense {
    T* order;
    T* where;
    std::int64_t* size;

    void change(const std::int64_t* removed, std::int64_t removed_count, const std::int64_t* added,
                std::int64_t added_count) const {
        std::int64_t n = *size;
        for (std::int64_t i = 0; i < removed_count; ++i) {
            const T last = order[--n], gap = where[removed[i]];
            order[gap] = last;
            where[last] = gap;
        }
        for (std::int64_t i = 0; i < added_count; ++i) {
            order[n] = static_cast<T>(added[i]);
            where[added[i]] = static_cast<T>(n++);
        }
        *size = n;
    }

    // The loads are independent of each other, so the processor overlaps their misses by itself.
    void draw(const double* u, std::int64_t n, std::int64_t* member) const {
        const std::int64_t last = *size - 1;
        const double count = static_cast<double>(*size);
        for (std::int64_t i = 0; i < n; ++i) {
            const auto place = static_cast<std::int64_t>(u[i] * count);
            member[i] = order[place < last ? place : last];
        }
    }

    // The first steps of a Fisher-Yates shuffle, in place.
    void draw_distinct(const double* u, std::int64_t n, std::int64_t* member) const {
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t left = *size - i;
            const auto offset = static_cast<std::int64_t>(u[i] * static_cast<double>(left));
            const std::int64_t j = i + (offset < left - 1 ? offset : left - 1);
            const T drawn = order[j], moved = order[i];
            order[j] = moved;
            where[moved] = static_cast<T>(j);
            order[i] = drawn;
            where[drawn] = static_cast<T>(i);
            member[i] = drawn;
        }
    }
};

}  // namespace relive
