// Writing to the ring. Knows bytes and integers, no Python object.
// `_ring/kernels_numpy/ring.py` states the same rules in readable form and is compared with this file in the tests.
#pragma once

#include "retiring.hpp"

namespace relive {

class Ring : public Retiring {
public:
    int64_t* any_given = nullptr;  // whether a priority was ever given
    uint8_t watched = 0;           // which notices are still to be said
    int64_t enough_ends = 20;      // from so many on it is looked whether final observations repeat

    void add_column(const Column& column) {
        const bool observation = columns.size() < num_obs;
        columns.push_back(column);
        stacked_ |= column.frames > 1;
        plain_ &= column.frames == 1 && !column.every;
        if (column.every) return;
        add_to_spans(spans, column, 0);
        if (observation) add_to_spans(spans, column, 1);
    }

    // The watched notices for which there is reason now; asked for where a call was notable: it has cut a stream, begun
    // one behind an end, or filled a lane.
    uint8_t notices() const {
        const Sums now = sums(true);
        uint8_t found = slips(now);
        if (now.of.steps >= 100 && now.of.cuts * 10 > now.of.steps) found |= MANY_CUTS;
        if (now.of.ends >= enough_ends && now.of.repeats * 10 >= now.of.ends * 9) found |= REPEATED_FINALS;
        return found & watched;
    }

    bool notable() const { return notable_ && watched; }

    void write(const Steps& steps, int64_t* ids) {
        notable_ = false;
        begin_call(steps.numbers, steps.n);
        const Touched::Call call(touched, steps.numbers, steps.n);
        const Summing summing(*this);
        if (steps.priority) publish(*any_given, 1);
        keeps_given_ = given && observe(*any_given);
        const bool plain = may_be_plain(steps);
        // Values are read in the order in which they lie.
        const int64_t outer = steps.by_time ? steps.length : 1, inner = steps.by_time ? 1 : steps.length;
        if (plain && inner == 1 && steps.n > 1) {
            const auto other = [&](const Slice& slice, int64_t i) { write_other(slice, i, ids); };
            for (int64_t moment = 0; moment < outer; ++moment) write_moment(steps, moment * steps.n, ids, other);
            return;
        }
        const bool whole = summing_ && inner > 1;  // of many steps of one lane the counters are looked at once
        summing_ &= !whole;
        for (int64_t first = 0, k = 0; first < outer; ++first)
            for (int64_t i = 0; i < steps.n; ++i) {
                if (i + TOGETHER < steps.n) {
                    const Place ahead = place(steps.number(i + TOGETHER));
                    prefetch(ahead.at, ahead.after);
                }
                unsettle(steps.number(i));
                const Lane& lane = lane_of[steps.number(i)];
                Lane before;
                if (whole) before = copied(lane);
                for (const int64_t end = k + inner; k < end; ++k) {
                    const Slice slice{&steps, i, 1, k};
                    if (!plain || !write_one(slice, ids)) write_other(slice, 0, ids);
                }
                if (whole) tally(lane, before, sums_);
            }
    }

    void cut(const int64_t* numbers, int64_t n) {
        begin_call(numbers, n);
        const Touched::Call call(touched, numbers, n);
        const Summing summing(*this);
        for (int64_t i = 0; i < n; ++i) {
            const int64_t number = numbers[i];
            unsettle(number);
            Lane lane = copied(lane_of[number]);
            if (lane.holds())
                close(number, lane);
            else if (open(number, lane))
                forget_newest(number, lane);
            finish(number, lane, -1, 0);
        }
    }

private:
    RELIVE_APART void write_other(const Slice& slice, int64_t i, int64_t* ids) {
        const int64_t number = slice.number(i);
        Lane lane = copied(lane_of[number]);
        int64_t at = 0;
        const int64_t row = step(*slice.steps, slice.k + i, number, lane, at);
        ids[slice.k + i] = row * lanes + number;
        finish(number, lane, row, at);
    }

    // Each step works on a copy of its lane's counters. `oldest` is published before a row that could be drawn is
    // written over, everything else when the step stands; so no other process is ever shown a row in between.
    // Returns the step's row, and where that stands.
    int64_t step(const Steps& steps, int64_t k, int64_t number, Lane& lane, int64_t& at) {
        const auto value = value_of(steps, steps.values, columns.data(), k);
        const auto next = value_of(steps, steps.nexts, columns.data(), k);
        at = storage_row(number, lane.memory);
        bool goes_on = lane.holds();
        if (goes_on) {
            if (differs(value, number, lane, at)) {
                close(number, lane);
                goes_on = false;
            }
        } else if (open(number, lane)) {
            goes_on = !differs(value, number, lane, -1);
            if (!goes_on) forget_newest(number, lane);
        }
        const bool stored = goes_on && lane.holds();  // the observation, as the successor of the step before
        uint8_t first = 0;
        if (!goes_on) {
            first = begin(value, number, lane, true);
            at = storage_row(number, lane.memory);
        }
        const int64_t row = lane.head;
        claim(number, lane);
        if (!stored) observe_at(value, at);
        store(steps, k, number, lane, at);
        note(steps, k, at);
        const bool terminated = steps.terminated[k], truncated = steps.truncated[k];
        uint8_t flags = STEP | first | (terminated ? TERMINATED : 0) | (truncated ? TRUNCATED : 0);
        if (starts == 1 || (starts ? lane.steps % starts == 0 : !goes_on)) flags |= START;
        ++lane.steps;
        ++lane.stored;
        lane.held = 0;
        if (!steps.nexts) {
            if (flags & END) flags |= LOST;
            if (truncated && !terminated) ++lane.unbootstrapped;
        } else if (!(flags & END) && stacked_ && apart(value, next)) {
            flags |= CUT;
            ++lane.cuts;
        }
        show(marks[at], flags);
        give_up(number, lane);
        if (steps.nexts) succeed(value, next, number, lane, at, flags);
        advance_ready(number, lane, flags);
        return row;
    }

    // The next observation goes to the row after the step: as the final one that row is the lane's at once.
    template <typename Value, typename Next>
    void succeed(Value value, Next next, int64_t number, Lane& lane, int64_t at, uint8_t flags) {
        if (flags & END) {
            const bool whole = flags & CUT || (stacked_ && apart(value, next));
            const uint8_t begins = whole ? begin(next, number, lane, false) : 0;
            const int64_t final = storage_row(number, claim(number, lane));
            observe_at(next, final);
            show(marks[final], begins);
        } else {
            const int64_t after = next_row(at);
            make_room(number, lane, lane.head - depth);
            observe_at(next, after);
            show(marks[after], 0);
            lane.held = lane.head;
        }
    }

    // What belongs to the step beside its observation; of fields that are kept at some steps only, what it keeps.
    void store(const Steps& steps, int64_t k, int64_t number, const Lane& lane, int64_t at) const {
        for (size_t c = num_obs; c < columns.size(); ++c) {
            const Column& column = columns[c];
            const char* value = steps.values[c] + size_t(k) * column.given();
            if (plain_ || !column.every)
                copy_row(column.at(at), value, column.row);
            else if (lane.steps % column.every == 0)
                keep(column, number, lane, value);
        }
    }

    void keep(const Column& column, int64_t number, const Lane& lane, const char* value) const {
        const int64_t unit = (lane.head - 1) / column.every, at = unit % column.slots * lanes + number;
        make_room(number, lane, (unit - column.slots + 1) * column.every - 1);
        copy_row(column.at(at), value, column.row);
    }

    // Whether the newest row is a step that has not ended its episode and was not cut.
    bool open(int64_t number, const Lane& lane) const {
        return lane.head && (mark(number, newest_of(lane)) & (STEP | END)) == STEP;
    }

    // Store the older frames which a stream that begins with this observation cannot do without. Returns the mark of
    // the row of the observation itself.
    template <typename Value>
    uint8_t begin(Value value, int64_t number, Lane& lane, bool of_step) {
        const std::vector<const char*>& from = in_front(value);
        if (of_step) look_back(from, number, lane);
        if (!stacked_) return FIRST;
        int64_t needed = 0;
        for (size_t c = 0; c < num_obs; ++c) {
            const Column& column = columns[c];
            for (int64_t age = column.frames - 1; age > needed; --age) {
                const char* frame = from[c] + size_t(column.frames - 1 - age) * column.row;
                const char* padding = column.repeat ? frame + column.row : zeros(c);
                if (std::memcmp(frame, padding, column.row) != 0) needed = age;
            }
        }
        otherwise_padded += needed && pads_otherwise(from);
        for (int64_t age = needed; age > 0; --age) {
            const int64_t memory = claim(number, lane);
            show(mark(number, memory), HISTORY | (age == needed ? FIRST : 0));
            for (size_t c = 0; c < num_obs; ++c) {
                const Column& column = columns[c];
                if (age >= column.frames) continue;
                copy_row(cell(c, number, memory), from[c] + size_t(column.frames - 1 - age) * column.row, column.row);
            }
        }
        return needed ? 0 : FIRST;
    }

    // Count episodes that ended with a new observation, and streams that begin with the very same one: where most do,
    // the caller adds the steps that only reset, or takes the next episode's first observation for the final one.
    void look_back(const std::vector<const char*>& from, int64_t number, Lane& lane) const {
        if (!lane.head || mark(number, newest_of(lane)) & (STEP | LOST)) return;
        const int64_t final = newest_of(lane);
        int64_t memory = final;
        const int64_t most = std::min(rows, lane.head);
        for (int64_t i = 1; i < most && i <= lookback + 1 && !(mark(number, memory) & STEP); ++i)
            memory = before_(memory);
        if (!(mark(number, memory) & (TERMINATED | TRUNCATED))) return;
        bool moved = false, same = true;
        for (size_t c = 0; c < num_obs; ++c) {
            const char* last = cell(c, number, final);
            moved |= std::memcmp(cell(c, number, memory), last, columns[c].row) != 0;
            same &= std::memcmp(columns[c].newest(from[c]), last, columns[c].row) == 0;
        }
        lane.ends += moved;
        lane.repeats += moved && same;
    }

    // The stream was cut: the row that holds the successor becomes a boundary row.
    void close(int64_t number, Lane& lane) {
        uint8_t& newest = mark(number, newest_of(lane));
        show(newest, newest | CUT);
        claim(number, lane);
        lane.held = 0;
        all_ready(lane);
        ++lane.cuts;
    }

    // Show the lane as it is now: `head`, which says that all before it stands, and then what depends on it.
    void finish(int64_t number, Lane& lane, int64_t written, int64_t written_at) {
        Lane& shown = lane_of[number];
        notable_ |= lane.cuts != shown.cuts || lane.ends != shown.ends || (full(lane) && !full(shown));
        for (int64_t row = std::max(shown.ready, lane.oldest); row < lane.ready; ++row) {
            const int64_t at = row == written ? written_at : storage_row(number, memory_of(lane, row));
            lane.drawable += (marks[at] & ANCHOR) == ANCHOR;
        }
        if (summing_) tally(lane, shown, sums_);
        show(shown.memory, lane.memory);
        std::atomic_thread_fence(std::memory_order_release);  // for `snapshot`
        show(shown.oldest, lane.oldest);
        show(shown.steps, lane.steps);
        show(shown.drawable, lane.drawable);
        show(shown.stored, lane.stored);
        show(shown.ready_steps, lane.ready_steps);
        show(shown.cuts, lane.cuts);
        show(shown.unbootstrapped, lane.unbootstrapped);
        show(shown.ends, lane.ends);
        show(shown.repeats, lane.repeats);
        publish(shown.head, lane.head);
        publish(shown.held, lane.held);
        publish(shown.ready, lane.ready);
    }

    // The newest step's successor was never seen: only its observation is of use, as the successor of the step before,
    // which may belong to an earlier episode, whose end is followed by observations only.
    void forget_newest(int64_t number, Lane& lane) {
        const int64_t newest = newest_of(lane);
        show(mark(number, newest), (mark(number, newest) & FIRST) | LOST);
        const int64_t most = std::min({rows, 2 * lookback + 3, lane.head});
        for (int64_t behind = 2; behind <= most; ++behind) {
            uint8_t& before = mark(number, memory_of(lane, lane.head - behind));
            if (!(before & STEP)) continue;
            show(before, before | CUT);
            break;
        }
        all_ready(lane);
        ++lane.cuts;
        --lane.stored;
    }
};

}  // namespace relive
