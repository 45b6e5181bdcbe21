// What fields of sequences are made from: by facts, when they are read; across episodes when they are drawn; and
// states.
#pragma once

#include "bind_ring.hpp"
#include "items.hpp"

namespace relive {

// What is kept of a sequence, for fields that are worked out when they are read: no array that the caller has.
struct Fact {
    std::int64_t id;  // of the step at the position `burn_in`
    int32_t lead, steps;
    uint8_t mark;  // of the last one
};

// A field of windows at each step.
template <typename T>
class OfWindows : public Later {
public:
    OfWindows(T* Unrolled::* field, size_t facts, std::int64_t length, bool time_major, std::vector<float> discounts)
        : field_(field), facts_(facts), length_(length), time_major_(time_major), discounts_(std::move(discounts)) {}

    void work_out(nb::handle items, npy_intp n, char* bytes) const override {
        const auto* facts = reinterpret_cast<const Fact*>(Items::data(items, facts_));
        auto* const to = reinterpret_cast<T*>(bytes);
        const auto longest = std::int64_t(discounts_.size()) - 1;
        const Targets targets{length_, longest, discounts_.data()};
        for (npy_intp b = 0; b < n; ++b) {
            Unrolled out;
            out.step = time_major_ ? n : 1;
            out.*field_ = to + (time_major_ ? b : b * length_);
            const std::int64_t end = facts[b].lead + facts[b].steps;
            targets.open(facts[b].lead, end, out);
            targets.close(facts[b].mark, facts[b].lead, end, out);
        }
    }

private:
    T* Unrolled::* field_;
    size_t facts_;
    std::int64_t length_;
    bool time_major_;
    std::vector<float> discounts_;
};

// The ids of the steps.
class StepIds : public Later {
public:
    StepIds(size_t facts, std::int64_t length, std::int64_t burn_in, std::int64_t lanes, bool time_major)
        : facts_(facts), length_(length), burn_in_(burn_in), lanes_(lanes), time_major_(time_major) {}

    void work_out(nb::handle items, npy_intp n, char* bytes) const override {
        const auto* facts = reinterpret_cast<const Fact*>(Items::data(items, facts_));
        auto* const to = reinterpret_cast<std::int64_t*>(bytes);
        for (npy_intp b = 0; b < n; ++b) {
            const Fact& fact = facts[b];
            for (std::int64_t i = 0; i < length_; ++i) {
                const bool there = i >= fact.lead && i < fact.lead + fact.steps;
                to[time_major_ ? i * n + b : b * length_ + i] = there ? fact.id + (i - burn_in_) * lanes_ : -1;
            }
        }
    }

private:
    size_t facts_;
    std::int64_t length_, burn_in_, lanes_;
    bool time_major_;
};

// The fields of windows of a batch: discount, both flags, steps, mask.
inline Unrolled windows_at(char* const* to) {
    const auto flags = [to](int field) { return reinterpret_cast<std::uint8_t*>(to[field]); };
    return {reinterpret_cast<std::int32_t*>(to[3]), reinterpret_cast<float*>(to[0]), flags(1), flags(2), flags(4)};
}

inline nb::tuple keys_of(nb::handle given) {
    nb::tuple keys = nb::cast<nb::tuple>(given);
    require(keys.size() > 0, "relive._ring._native.Gather.sequences: a field without a name");
    return keys;
}

// A column that is kept at every so many steps, in rows of its own.
struct KeptState {
    nb::tuple keys;
    nb::object column;
    RowArray array;
    std::int64_t every, slots;

    KeptState(nb::handle given, const Ring& ring)
        : keys(keys_of(given[0])), column(given[1]), array(column), every(nb::cast<std::int64_t>(given[2])), slots(0) {
        require(every >= 1, "relive._ring._native.Gather.sequences: a state that is kept at no step");
        slots = (ring.rows - 1) / every + 2;
        require(array.rows == slots * ring.lanes, "relive._ring._native.Gather.sequences: states of another ring");
    }
    const char* at(std::int64_t row, std::int64_t number, std::int64_t lanes) const {
        return array.column.at(row / every % slots * lanes + number);
    }
    // As it was at the first step of an item, which lies `back` steps before its anchor.
    void copy(std::int64_t back, std::int64_t row, std::int64_t number, std::int64_t lanes, char* to,
              std::int64_t item) const {
        to += array.column.row * size_t(item);
        if (back % every)  // not kept at this step, with which a stream begins
            std::memset(to, 0, array.column.row);
        else
            copy_row(to, at(row, number, lanes), array.column.row);
    }
};

}  // namespace relive
