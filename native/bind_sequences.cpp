// Sequences as the native `sample` expands them.
#include "bind_gather.hpp"
#include "draw.hpp"
#include "fold.hpp"
#include "sequence_fields.hpp"

namespace relive {
namespace {

// Sequences of single observations.
class SequenceItems : public Expansion {
public:
    SequenceItems(nb::object gather, nb::object ring, std::int64_t length, In<float> discounts, bool time_major,
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
        require(discounts.size >= 2 && gammas.size == discounts.size && length >= 1 && length <= rows.rows &&
                    discounts.size <= rows.rows && length + n() - 1 <= rows.rows,
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
        for (nb::handle state : states) states_.push_back(KeptState(state, rows));
        noted_ = Noted(size_t(length));
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
        for (const KeptState& state : states_) add(nb::tuple(), state.column, {}, 0);
        const auto plain = [&](const char* name, int type) {
            const nb::object dtype = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
            return layout.add(name ? nb::make_tuple(nb::str(name)) : nb::tuple(), dtype, {length}, axis);
        };
        const nb::object eight = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_INT64)));
        static_assert(sizeof(Fact) % 8 == 0);
        if (!across()) facts_ = layout.add(nb::tuple(), eight, {npy_intp(sizeof(Fact) / 8)});
        owns_.clear();
        for (size_t c = 0; c < gather_.size(); ++c) {
            const bool several = shown_[c].size() > 1;
            if (several) layout.freeze(c);
            for (const Part& shown : shown_[c]) {
                const bool first = &shown == &shown_[c].front(), sums = first && std::int64_t(c) == summed_;
                // Across episodes a successor may be another observation than the one n positions on, and what came
                // before an episode's first step is zero.
                const bool apart = across() && several && (gather_.pick(c) ? first : &shown == &shown_[c].back());
                if (!sums && !apart) {
                    layout.add_part(shown.keys, c, part(shown.begin, shown.end, positions));
                    continue;
                }
                const size_t field = add(shown.keys, gather_.column(c), {length}, axis);
                if (sums)
                    sums_ = field;
                else
                    layout.freeze(field);
                if (!sums || n() == 1) owns_.push_back({c, field, shown.begin});
            }
        }
        for (size_t s = 0; s < states_.size(); ++s) layout.add_part(states_[s].keys, gather_.size() + s, nb::none());
        windows_ = layout.fields().size();
        const auto later = [&]<typename T>(const char* name, int type, T* Unrolled::* field) {
            if (across())
                plain(name, type);
            else
                layout.add_later(name, type, {length}, axis,
                                 std::make_shared<OfWindows<T>>(field, facts_, length_, time_major_, discounts_));
        };
        later("discount", NPY_FLOAT, &Unrolled::discount);
        later("terminated", NPY_BOOL, &Unrolled::terminated);
        later("truncated", NPY_BOOL, &Unrolled::truncated);
        later("steps", NPY_INT32, &Unrolled::steps);
        later("mask", NPY_BOOL, &Unrolled::mask);
        firsts_ = first_ ? layout.add("first", NPY_BOOL) : 0;
        if (step_ids_ && across())
            step_ids_at_ = plain("step_ids", NPY_INT64);
        else if (step_ids_)
            layout.add_later("step_ids", NPY_INT64, {length}, axis,
                             std::make_shared<StepIds>(facts_, length_, burn_in_, owner_.ring.lanes, time_major_));
        ids_ = layout.add("ids", NPY_INT64);
    }

    std::int64_t rows() const override { return length_ + n(); }
    std::int64_t scratch() const override {
        constexpr auto words = [](size_t bytes) { return std::int64_t(bytes / sizeof(std::int64_t)); };
        return across() ? words(sizeof(Placed)) + rows() * words(sizeof(Run)) : words(sizeof(Stretch));
    }

    void expand(const std::int64_t* slots, std::int64_t items, char* const* to, std::int64_t* scratch) override {
        within(slots, items, owner_.ring.slots(), "relive._ring._native.sampling: a sampler of another ring");
        static_assert((sizeof(Stretch) | sizeof(Placed) | sizeof(Run)) % sizeof(std::int64_t) == 0);
        if (!across()) return expand(slots, items, to, reinterpret_cast<Stretch*>(scratch));
        auto* const found = reinterpret_cast<Placed*>(scratch);
        for (std::int64_t i = 0; i < items; ++i)
            found[i].runs = {reinterpret_cast<Run*>(found + items) + i * rows(), 0};
        expand(slots, items, to, found);
    }

private:
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
    std::vector<KeptState> states_;
    size_t facts_ = 0, sums_ = 0, windows_ = 0, firsts_ = 0, step_ids_at_ = 0, ids_ = 0;
    // A part of a column that has memory of its own.
    struct Own {
        size_t column, field;
        npy_intp begin;
    };
    std::vector<Own> owns_;
    Noted noted_;

    bool across() const { return owner_.ring.across; }
    Sequences sequences() const { return {owner_.ring, length_, n(), discounts_.data(), burn_in_}; }
    std::int64_t n() const { return std::int64_t(discounts_.size()) - 1; }

    Part part_of(nb::handle given) const {
        Part found{keys_of(given[0]), nb::cast<npy_intp>(given[1]), nb::cast<npy_intp>(given[2])};
        require(found.begin >= 0 && found.begin < found.end && found.end <= npy_intp(rows()),
                "relive._ring._native.Gather.sequences: a part outside the positions");
        return found;
    }

    // The index of some positions of an array.
    nb::object part(npy_intp begin, npy_intp end, npy_intp positions) const {
        if (begin == 0 && end == positions) return nb::none();
        const nb::object times = nb::slice(nb::int_(begin), nb::int_(end), nb::none());
        if (time_major_) return times;
        return nb::make_tuple(nb::slice(nb::none(), nb::none(), nb::none()), times);
    }

    template <typename Found>
    void expand(const std::int64_t* slots, std::int64_t items, char* const* to, Found* found) {
        const Ring& ring = owner_.ring;
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
                for (const Own& own : owns_) copy_own(own, i, items, to);
            }
            if (summed_ >= 0 && n() > 1) {
                if (single_)
                    sum<float>(found, items, to);
                else
                    sum<double>(found, items, to);
            }
            if constexpr (std::is_same_v<Found, Placed>)
                for (std::int64_t i = 0; i < items; ++i) join(found[i], i, items, to);
        });
    }

    // Finds the sequences, and writes down what is known of them. Returns by how many rows, at most, one of theirs lies
    // behind its lane's head.
    template <typename Found>
    std::int64_t find(const std::int64_t* slots, std::int64_t items, Found* found, char* const* to) {
        const Ring& ring = owner_.ring;
        const Sequences sequences = this->sequences();
        auto* const ids = reinterpret_cast<std::int64_t*>(to[ids_]);
        constexpr std::int64_t DEEP = 16;
        std::int64_t behind = 0;
        for (std::int64_t i = 0; i < std::min(DEEP, items); ++i) sequences.fetch(slots[i]);
        for (std::int64_t i = 0; i < items; ++i) {
            if (i + DEEP < items) sequences.fetch(slots[i + DEEP]);
            sequences.find(slots[i], found[i]);
            const Found& now = found[i];
            ids[i] = now.row * ring.lanes + now.number;
            if constexpr (std::is_same_v<Found, Placed>)
                note(now, i, items, to);
            else
                reinterpret_cast<Fact*>(to[facts_])[i] = {ids[i], int32_t(now.lead), int32_t(now.run.count),
                                                          now.run.mark};
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

    // Across episodes: the windows at an item's positions, and the ids of its steps.
    void note(const Placed& found, std::int64_t item, std::int64_t items, char* const* to) {
        sequences().windows(found, time_major_ ? 0 : item, time_major_ ? noted_.lists() : Noted::fields(to + windows_));
        const auto put = [&]<typename T>(size_t field, const std::vector<T>& values) {
            T* at = reinterpret_cast<T*>(to[field]) + (time_major_ ? item : item * length_);
            for (size_t i = 0; i < values.size(); ++i, at += time_major_ ? items : 1) *at = values[i];
        };
        if (time_major_) {
            put(windows_, noted_.discount);
            put(windows_ + 1, noted_.terminated);
            put(windows_ + 2, noted_.truncated);
            put(windows_ + 3, noted_.steps);
            put(windows_ + 4, noted_.mask);
        }
        if (!step_ids_) return;
        const Ring& ring = owner_.ring;
        std::int64_t i = 0;
        for (const Run& run : runs_of(found)) {
            const std::int64_t behind = run.memory - found.runs.first->memory;
            std::int64_t row = found.row + behind + (behind < 0 ? ring.depth : 0);
            for (std::int64_t k = 0; k < run.count && i < length_; ++k, ++row, ++i)
                noted_.ids[size_t(i)] = row * ring.lanes + found.number;
        }
        std::fill(noted_.ids.begin() + i, noted_.ids.end(), -1);
        put(step_ids_at_, noted_.ids);
    }

    // Put in, across episodes, the successors that are other observations than those n positions on, and zeros where
    // an episode begins behind an end.
    void join(const Placed& found, std::int64_t item, std::int64_t items, char* const* to) const {
        const auto at = [&](size_t field, size_t size, std::int64_t i, std::int64_t count) {
            return to[field] + size * size_t(time_major_ ? i * items + item : item * count + i);
        };
        sequences().joints(
            found,
            [&](std::int64_t i, std::int64_t row) {
                for (const Own& own : owns_) {
                    const size_t size = gather_.row(own.column);
                    if (!gather_.pick(own.column))
                        copy_row(at(own.field, size, i, length_), gather_.at(own.column, row), size);
                }
            },
            [&](std::int64_t i) {
                for (size_t c = 0; c < shown_.size(); ++c)
                    if (const size_t size = gather_.row(c); gather_.pick(c) && shown_[c].size() > 1)
                        std::memset(at(c, size, i, rows()), 0, size);
            });
    }

    void copy_own(const Own& own, std::int64_t item, std::int64_t items, char* const* to) const {
        const size_t row = gather_.row(own.column), step = row * size_t(time_major_ ? items : 1);
        const char* const from = to[own.column] + step * size_t(own.begin);
        const std::int64_t positions = time_major_ ? 1 : rows(), shown = time_major_ ? 1 : length_;
        chosen().copy_strip(
            {from + row * size_t(item * positions), to[own.field] + row * size_t(item * shown), row, step, step},
            length_);
    }

    template <typename T>
    Sheet sheet(std::int64_t items) const {
        const auto width = std::int64_t(gather_.row(size_t(summed_)) / sizeof(T));
        return {items, length_, rows(), width, time_major_};
    }
    template <typename T>
    void sum(const Placed*, std::int64_t items, char* const* to) const {
        fold_sequences(reinterpret_cast<const T*>(to[summed_]), reinterpret_cast<const std::int32_t*>(to[windows_ + 3]),
                       gammas_.data(), sheet<T>(items), reinterpret_cast<T*>(to[sums_]));
    }
    template <typename T>
    void sum(const Stretch* found, std::int64_t items, char* const* to) const {
        const auto c = size_t(summed_);
        const Sheet sheet = this->sheet<T>(items);
        const std::int64_t width = sheet.width;
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

nb::object sequences_of_single(nb::object gather, nb::object ring, std::int64_t length, In<float> discounts,
                               bool time_major, nb::list shown, std::int64_t summed, In<double> gammas, nb::list states,
                               bool step_ids, std::int64_t burn_in, bool first) {
    Expansion* const made =
        new SequenceItems(std::move(gather), std::move(ring), length, discounts, time_major, std::move(shown), summed,
                          gammas, std::move(states), step_ids, burn_in, first);
    return nb::cast(made, nb::rv_policy::take_ownership);
}

}  // namespace relive
