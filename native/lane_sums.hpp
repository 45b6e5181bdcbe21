// How many of something the lanes before each lane have: within its group, and in the groups before. So a lane whose
// number changes costs two short passes, and not one over all lanes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "touched.hpp"

namespace relive {

class LaneSums {
public:
    // There is nothing until the groups are summed.
    void prepare(int64_t lanes) {
        lanes_.resize(size_t(lanes));
        groups_.resize(size_t(Touched::groups_of(lanes)) + 1);
        of_group_.resize(groups_.size());
        groups_.back() = 0;
    }

    // Lanes of a group have other numbers; `count(number)` is that of a lane.
    template <typename Count>
    void sum(const Group& group, Count count) {
        int64_t sum = 0;
        for (int64_t number = group.first; number < group.last; ++number) {
            lanes_[size_t(number)] = sum;
            sum += count(number);
        }
        of_group_[size_t(group.number)] = sum;
    }

    // To be called once all groups that changed are summed.
    void sum_groups() {
        for (size_t g = 0; g + 1 < groups_.size(); ++g) groups_[g + 1] = groups_[g] + of_group_[g];
    }

    // Of all lanes.
    int64_t total() const { return groups_.back(); }

    int64_t before(int64_t number) const { return groups_[size_t(number >> NEIGHBOURS)] + lanes_[size_t(number)]; }

    // The lane of the k-th of all. Lanes have about equally many, so k says where to look.
    int64_t lane_of(int64_t k) const {
        const auto lanes = int64_t(lanes_.size());
        auto number = int64_t(double(k) / double(total()) * double(lanes));
        number = number < lanes - 1 ? number : lanes - 1;
        for (int tries = 0; tries < 4; ++tries) {
            if (k < before(number))
                --number;
            else if (number + 1 < lanes && k >= before(number + 1))
                ++number;
            else
                return number;
        }
        const int64_t found = std::upper_bound(groups_.begin(), groups_.end(), k) - groups_.begin() - 1;
        const Group group = Touched::group(found, lanes);
        const auto first = lanes_.begin() + group.first, last = lanes_.begin() + group.last;
        return std::upper_bound(first, last, k - groups_[size_t(found)]) - lanes_.begin() - 1;
    }

private:
    std::vector<int64_t> lanes_;      // of the lanes before each in its group
    std::vector<int64_t> groups_{0};  // of the groups before each, and of all of them
    std::vector<int64_t> of_group_;
};

}  // namespace relive
