// Sequences as the native `sample` expands them.
#include "bind_gather.hpp"
#include "draw.hpp"
#include "fold.hpp"

namespace relive {
namespace {

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
        std::vector<T> one(time_major_ ? size_t(length_) : 0);
        for (npy_intp b = 0; b < n; ++b) {
            Unrolled out;
            out.*field_ = time_major_ ? one.data() : to + b * length_;
            const std::int64_t end = facts[b].lead + facts[b].steps;
            targets.open(facts[b].lead, end, 0, out);
            targets.close(facts[b].mark, facts[b].lead, end, 0, out);
            for (size_t i = 0; i < one.size(); ++i) to[npy_intp(i) * n + b] = one[i];
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

// Sequences within an episode, of single observations.
class SequencesWithin : public Expansion {
public:
    SequencesWithin(nb::object gather, nb::object ring, std::int64_t length, In<float> discounts, bool time_major,
                    nb::list shown, std::int64_t summed, In<double> gammas, nb::list states, bool step_ids,
                    std::int64_t burn_in, bool first)
        : gather_(nb::cast<const PyGather&>(gather)),
          owner_(nb::cast<PyRing&>(ring)),
          length_(length),
          burn_in_(burn_in),
          time_major_(time_major),
          first_(first),
          discounts_(discounts.data, discounts.data + discounts.size),
          gammas_(gammas.data, gammas.data + gammas.size),
          summed_(summed),
          step_ids_(step_ids),
          held_(nb::make_tuple(gather, ring)) {
        gather_.check_of(owner_, "relive._ring._native.Gather.sequences: columns of another ring");
        const Ring& rows = owner_.ring;
        require(!rows.across && discounts.size >= 2 && gammas.size == discounts.size && length >= 1 &&
                    length <= rows.rows && discounts.size <= rows.rows && length + n() - 1 <= rows.rows,
                "relive._ring._native.Gather.sequences: no sequence that a lane holds");
        owner_.check_burn_in(burn_in, length, "relive._ring._native.Gather.sequences: no such burn-in");
        require(shown.size() == gather_.size() && summed >= -1 && summed < std::int64_t(gather_.size()),
                "relive._ring._native.Gather.sequences: not as many lists of parts as columns");
        for (nb::handle parts : shown) {
            shown_.emplace_back();
            for (nb::handle part : parts) shown_.back().push_back(part_of(part));
        }
        if (summed >= 0) {
            const int type = PyArray_TYPE(array(gather_.column(size_t(summed))));
            require(n() == 1 || type == NPY_FLOAT || type == NPY_DOUBLE,
                    "relive._ring._native.Gather.sequences: rewards have to be floats");
            single_ = type == NPY_FLOAT;
            const auto& parts = shown_[size_t(summed)];
            require(!parts.empty() && parts[0].begin == 1, "relive._ring._native.Gather.sequences: no field of sums");
        }
        for (nb::handle state : states) states_.push_back(State(state, rows));
    }

    void lay_out(Layout& layout) override {
        const npy_intp positions = npy_intp(length_ + n()), length = npy_intp(length_);
        const int axis = time_major_ ? 1 : 0;
        const auto add = [&](nb::tuple keys, nb::handle column, std::vector<npy_intp> times, int of) {
            const npy_intp* shape = PyArray_DIMS(array(column));
            times.insert(times.end(), shape + 1, shape + PyArray_NDIM(array(column)));
            return layout.add(std::move(keys), nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(array(column)))),
                              std::move(times), of);
        };
        for (size_t c = 0; c < gather_.size(); ++c) add(nb::tuple(), gather_.column(c), {positions}, axis);
        for (const State& state : states_) add(nb::tuple(), state.column, {}, 0);
        const nb::object eight = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_INT64)));
        static_assert(sizeof(Fact) % 8 == 0);
        facts_ = layout.add(nb::tuple(), eight, {npy_intp(sizeof(Fact) / 8)});
        for (size_t c = 0; c < gather_.size(); ++c) {
            if (shown_[c].size() > 1) layout.freeze(c);
            for (const Part& shown : shown_[c]) {
                if (std::int64_t(c) == summed_ && &shown == &shown_[c][0])
                    sums_ = add(shown.keys, gather_.column(c), {length}, axis);
                else
                    layout.add_part(shown.keys, c, part(shown.begin, shown.end, positions));
            }
        }
        for (size_t s = 0; s < states_.size(); ++s) layout.add_part(states_[s].keys, gather_.size() + s, nb::none());
        const auto later = [&]<typename T>(const char* name, int type, T* Unrolled::* field) {
            layout.add_later(name, type, {length}, axis,
                             std::make_shared<OfWindows<T>>(field, facts_, length_, time_major_, discounts_));
        };
        later("discount", NPY_FLOAT, &Unrolled::discount);
        later("terminated", NPY_BOOL, &Unrolled::terminated);
        later("truncated", NPY_BOOL, &Unrolled::truncated);
        later("steps", NPY_INT32, &Unrolled::steps);
        later("mask", NPY_BOOL, &Unrolled::mask);
        firsts_ = first_ ? layout.add("first", NPY_BOOL) : 0;
        if (step_ids_)
            layout.add_later("step_ids", NPY_INT64, {length}, axis,
                             std::make_shared<StepIds>(facts_, length_, burn_in_, owner_.ring.lanes, time_major_));
        ids_ = layout.add("ids", NPY_INT64);
    }

    std::int64_t rows() const override { return length_ + n(); }
    std::int64_t scratch() const override { return sizeof(Stretch) / sizeof(std::int64_t); }

    void expand(const std::int64_t* slots, std::int64_t items, char* const* to, std::int64_t* scratch) override {
        const Ring& ring = owner_.ring;
        within(slots, items, ring.slots(), "relive._ring._native.sampling: a sampler of another ring");
        static_assert(sizeof(Stretch) % sizeof(std::int64_t) == 0);
        auto* const found = reinterpret_cast<Stretch*>(scratch);
        std::int64_t behind = 0;
        run(items, [&] { behind = find(slots, items, found, to); });
        // Others make their calls meanwhile.
        owner_.read(behind, items * rows(), [&] {
            const Pages::Reading reading = gather_.reading();
            for (std::int64_t i = 0; reading.missing() && i < items; ++i) gather_.ask(ring, found[i]);
            const std::int64_t ahead = gather_.ahead(ring);
            for (std::int64_t i = 1; i < std::min(ahead, items); ++i) gather_.fetch(ring, found[i]);
            for (std::int64_t i = 0; i < items; ++i) {
                gather_.copy_sequence(ring, found[i], i + ahead < items ? found + i + ahead : nullptr, i,
                                      {items, rows(), time_major_}, to);
                if (summed_ >= 0 && n() == 1) copy_rewards(i, items, to[summed_], to[sums_]);
            }
            if (summed_ >= 0 && n() > 1) {
                if (single_)
                    sum<float>(found, items, to);
                else
                    sum<double>(found, items, to);
            }
        });
    }

private:
    // A column that is kept at every so many steps, in rows of its own.
    struct State {
        nb::tuple keys;
        nb::object column;
        RowArray array;
        std::int64_t every, slots;

        State(nb::handle given, const Ring& ring)
            : keys(keys_of(given[0])),
              column(given[1]),
              array(column),
              every(nb::cast<std::int64_t>(given[2])),
              slots(0) {
            require(every >= 1, "relive._ring._native.Gather.sequences: a state that is kept at no step");
            slots = (ring.rows - 1) / every + 2;
            require(array.rows == slots * ring.lanes, "relive._ring._native.Gather.sequences: states of another ring");
        }
        const char* at(std::int64_t row, std::int64_t number, std::int64_t lanes) const {
            return array.column.at(row / every % slots * lanes + number);
        }
    };
    struct Part {
        nb::tuple keys;
        npy_intp begin, end;
    };

    const PyGather& gather_;
    PyRing& owner_;
    std::int64_t length_, burn_in_;
    bool time_major_, first_, single_ = false;
    std::vector<float> discounts_;
    std::vector<double> gammas_;
    std::vector<std::vector<Part>> shown_;
    std::int64_t summed_;
    bool step_ids_;
    nb::object held_;
    std::vector<State> states_;
    size_t facts_ = 0, sums_ = 0, firsts_ = 0, ids_ = 0;

    std::int64_t n() const { return std::int64_t(discounts_.size()) - 1; }

    Part part_of(nb::handle given) const {
        Part found{keys_of(given[0]), nb::cast<npy_intp>(given[1]), nb::cast<npy_intp>(given[2])};
        require(found.begin >= 0 && found.begin < found.end && found.end <= npy_intp(rows()),
                "relive._ring._native.Gather.sequences: a part outside the positions");
        return found;
    }
    static nb::tuple keys_of(nb::handle given) {
        nb::tuple keys = nb::cast<nb::tuple>(given);
        require(keys.size() > 0, "relive._ring._native.Gather.sequences: a field without a name");
        return keys;
    }

    // The index of some positions of an array.
    nb::object part(npy_intp begin, npy_intp end, npy_intp positions) const {
        if (begin == 0 && end == positions) return nb::none();
        const nb::object times = nb::slice(nb::int_(begin), nb::int_(end), nb::none());
        if (time_major_) return times;
        return nb::make_tuple(nb::slice(nb::none(), nb::none(), nb::none()), times);
    }

    // Finds the sequences, and writes down what is known of them. Returns by how many rows, at most, one of theirs lies
    // behind its lane's head.
    std::int64_t find(const std::int64_t* slots, std::int64_t items, Stretch* found, char* const* to) const {
        const Ring& ring = owner_.ring;
        const Sequences sequences(ring, length_, n(), discounts_.data(), burn_in_);
        auto* const facts = reinterpret_cast<Fact*>(to[facts_]);
        auto* const ids = reinterpret_cast<std::int64_t*>(to[ids_]);
        constexpr std::int64_t DEEP = 16;
        std::int64_t behind = 0;
        for (std::int64_t i = 0; i < std::min(DEEP, items); ++i) sequences.fetch(slots[i]);
        for (std::int64_t i = 0; i < items; ++i) {
            if (i + DEEP < items) sequences.fetch(slots[i + DEEP]);
            const Stretch& now = found[i] = sequences.stretch(slots[i]);
            ids[i] = now.row * ring.lanes + now.number;
            facts[i] = {ids[i], int32_t(now.lead), int32_t(now.run.count), now.run.mark};
            if (first_) reinterpret_cast<std::uint8_t*>(to[firsts_])[i] = now.first;
            const std::int64_t back = burn_in_ - now.lead, row = now.row - back;
            behind = std::max(behind, ring.position(now.number).head - row + 1);  // the row before it is read, too
            for (size_t s = 0; s < states_.size(); ++s) {
                const size_t size = states_[s].array.column.row;
                char* const state = to[gather_.size() + s] + size_t(i) * size;
                if (back % states_[s].every)  // not kept at this step, with which a stream begins
                    std::memset(state, 0, size);
                else
                    copy_row(state, states_[s].at(row, now.number, ring.lanes), size);
            }
        }
        return behind;
    }

    // Sums of one reward each: the rewards of an item's steps, given those before each position.
    void copy_rewards(std::int64_t item, std::int64_t items, const char* from, char* to) const {
        const size_t row = gather_.row(size_t(summed_)), step = row * size_t(time_major_ ? items : 1);
        from += step + row * size_t(item * (time_major_ ? 1 : rows()));
        to += row * size_t(item * (time_major_ ? 1 : length_));
        chosen().copy_strip({from, to, row, step, step}, length_);
    }

    template <typename T>
    void sum(const Stretch* found, std::int64_t items, char* const* to) const {
        const auto c = size_t(summed_);
        const auto width = std::int64_t(gather_.row(c) / sizeof(T));
        const Sheet sheet{items, length_, rows(), width, time_major_};
        for (std::int64_t b = 0; b < items; ++b) {
            const std::int64_t lead = found[b].lead, count = lead + found[b].run.count;
            const std::int64_t end = found[b].run.mark & END ? count : count + n();
            const auto steps = [&](std::int64_t i) { return i >= lead && i < count ? std::min(n(), end - i) : 0; };
            const Series<T> series{reinterpret_cast<const T*>(to[c]) + sheet.begin(b, rows()), sheet.later(), width};
            series.fold(length_, steps, gammas_.data(), reinterpret_cast<T*>(to[sums_]) + sheet.begin(b, length_),
                        sheet.later());
        }
    }
};

}  // namespace

nb::object sequences_within(nb::object gather, nb::object ring, std::int64_t length, In<float> discounts,
                            bool time_major, nb::list shown, std::int64_t summed, In<double> gammas, nb::list states,
                            bool step_ids, std::int64_t burn_in, bool first) {
    Expansion* const made =
        new SequencesWithin(std::move(gather), std::move(ring), length, discounts, time_major, std::move(shown), summed,
                            gammas, std::move(states), step_ids, burn_in, first);
    return nb::cast(made, nb::rv_policy::take_ownership);
}

}  // namespace relive
