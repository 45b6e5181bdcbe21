// Observations as they are given: single frames, or stacks of them, which are held against the rows that are stored.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels.hpp"
#include "plain_steps.hpp"

namespace relive {

// One column's value.
struct Given {
    const char* data;
    bool behind;  // a stack whose frames lie behind
};

class Observations : public PlainSteps {
protected:
    bool stacked_ = false;

    uint8_t& mark(int64_t number, int64_t memory) const { return marks[storage_row(number, memory)]; }

    char* cell(size_t column, int64_t number, int64_t memory) const {
        return columns[column].at(storage_row(number, memory));
    }

    const char* zeros(size_t column) const { return columns[column].at(zero_row()); }

    static auto value_of(const Steps& steps, const char* const* values, const Column* columns, int64_t k) {
        return [values, columns, k, behind = steps.behind](size_t c) {
            return Given{values[c] + size_t(k) * columns[c].given(), behind && behind[c]};
        };
    }

    // Write the newest frames to a storage row.
    template <typename Value>
    RELIVE_INLINE void observe_at(Value value, int64_t at) {
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            const Given of = value(c);
            copy_row(column.at(at), of.behind ? newest_frame(column, of) : column.newest(of.data), column.row);
        }
    }

    // Whether an observation starts a new stream. Its older frames have to equal the last frames of the observation in
    // the lane's newest row, and its newest frame the one at the storage row `held`; -1: any.
    template <typename Value>
    bool differs(Value value, int64_t number, const Lane& lane, int64_t held) {
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            if (column.frames == 1) {
                if (held >= 0 && std::memcmp(column.at(held), value(c).data, column.row) != 0) return true;
                continue;
            }
            if (stack_differs(c, value(c), number, lane, held)) return true;
        }
        return false;
    }

    // Whether the older frames of the observation after are not the newer ones of the one before.
    template <typename Value, typename Next>
    bool apart(Value value, Next next) const {
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            const size_t shared = column.row * size_t(column.frames - 1);
            if (!shared) continue;
            const Given now = value(c), after = next(c);
            if (now.behind ? !chosen().follows(pixels(column, now), after.data)
                           : std::memcmp(now.data + column.row, after.data, shared) != 0)
                return true;
        }
        return false;
    }

    // The same values, frames one after the other.
    template <typename Value>
    const std::vector<const char*>& in_front(Value value) {
        whole_.resize(num_obs);
        laid_.resize(num_obs);
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            const Given of = value(c);
            laid_[c] = of.data;
            if (!of.behind) continue;
            whole_[c].resize(column.given());
            parts_.clear();
            for (int64_t i = 0; i < column.frames; ++i) parts_.push_back(whole_[c].data() + size_t(i) * column.row);
            chosen().split(pixels(column, of), parts_.data());
            laid_[c] = whole_[c].data();
        }
        return laid_;
    }

    int64_t otherwise_padded = 0;  // streams that begin with stacks padded in the other way than the schema's

    // The notices of streams that never end, of stacks that are padded in another way, and of too many boundary rows.
    uint8_t slips(const Sums& now) const {
        const bool unended = now.of.cuts >= 20 && now.of.cuts * 10 <= now.of.steps && !now.of.ends;
        const bool padded = otherwise_padded >= 3;
        return (unended ? NO_ENDS : 0) | (padded ? OTHER_PADDING : 0) | (now.crowded ? MANY_BOUNDARIES : 0);
    }

    // Whether the older frames of each stack are all what the other padding gives: zeros, or the newest frame.
    bool pads_otherwise(const std::vector<const char*>& from) const {
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            for (int64_t age = 1; age < column.frames; ++age) {
                const char* frame = from[c] + size_t(column.frames - 1 - age) * column.row;
                const char* padding = column.repeat ? zeros(c) : frame + column.row;
                if (std::memcmp(frame, padding, column.row) != 0) return false;
            }
        }
        return true;
    }

private:
    // Of one observation, kept for the next one.
    std::vector<const char*> frames_, laid_;
    std::vector<char*> parts_;
    std::vector<std::vector<char>> whole_;
    std::vector<char> newest_;

    RELIVE_APART const char* newest_frame(const Column& column, Given of) {
        newest_.resize(std::max(newest_.size(), column.row));
        parts_.assign(size_t(column.frames), nullptr);
        parts_.back() = newest_.data();
        chosen().split(pixels(column, of), parts_.data());
        return newest_.data();
    }

    RELIVE_APART bool stack_differs(size_t c, Given of, int64_t number, const Lane& lane, int64_t held) {
        const Column& column = columns[c];
        frames_.assign(size_t(column.frames), nullptr);
        if (held >= 0) frames_.back() = column.at(held);
        int64_t memory = newest_of(lane);
        const char* stored = cell(c, number, memory);
        for (int64_t i = column.frames - 2; i >= 0; --i) {
            frames_[size_t(i)] = stored;
            if (stored == zeros(c)) continue;
            if (!(mark(number, memory) & FIRST)) {
                memory = before_(memory);
                stored = cell(c, number, memory);
            } else if (!column.repeat) {
                stored = zeros(c);
            }
        }
        return !shows(column, of);
    }

    static Pixels pixels(const Column& column, Given of) {
        return {of.data, int64_t(column.row / column.element), column.frames, column.element};
    }

    // Whether a value has the frames `frames_`; null: whatever it has.
    bool shows(const Column& column, Given of) const {
        if (of.behind) return chosen().shows(pixels(column, of), frames_.data());
        for (size_t i = frames_.size(); i-- > 0;)
            if (frames_[i] && std::memcmp(frames_[i], of.data + i * column.row, column.row) != 0) return false;
        return true;
    }
};

}  // namespace relive
