// Sequences as the native `sample` expands them.
#include "across.hpp"
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
        return across() ? rows() * Lists::ROOM : std::int64_t(sizeof(Stretch) / sizeof(std::int64_t));
    }

    void expand(const std::int64_t* slots, std::int64_t items, char* const* to, std::int64_t* scratch) override {
        within(slots, items, owner_.ring.slots(), "relive._ring._native.sampling: a sampler of another ring");
        static_assert(sizeof(Stretch) % sizeof(std::int64_t) == 0);
        if (across()) return expand_across(slots, items, to, scratch);
        expand(slots, items, to, reinterpret_cast<Stretch*>(scratch));
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

    bool across() const { return owner_.ring.across; }
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

    void expand(const std::int64_t* slots, std::int64_t items, char* const* to, Stretch* found) {
        const Ring& ring = owner_.ring;
        auto* const facts = reinterpret_cast<Fact*>(to[facts_]);
        const Sequences sequences(ring, length_, n(), discounts_.data(), burn_in_);
        const auto one = [=, this](const Sequences& of, std::int64_t i) -> const Around& {
            found[i] = of.stretch(slots[i]);
            const Run& run = found[i].run;
            facts[i] = {id_of(found[i]), int32_t(found[i].lead), int32_t(run.count), run.mark};
            return found[i];
        };
        const std::int64_t behind = find(slots, items, to, sequences, one);
        // Others make their calls meanwhile.
        owner_.read(behind, items * rows(), [&] {
            const Pages::Reading reading = gather_.reading();
            for (std::int64_t i = 0; reading.missing() && i < items; ++i) gather_.ask(ring, found[i]);
            const std::int64_t ahead = gather_.ahead(ring);
            for (std::int64_t i = 1; i < std::min(ahead, items); ++i) gather_.fetch(ring, found[i]);
            for (std::int64_t i = 0; i < items; ++i)
                gather_.copy_sequence(ring, found[i], i + ahead < items ? found + i + ahead : nullptr, i,
                                      {items, rows(), time_major_}, to);
            copy_owns(0, time_major_ ? rows() : items, items, to);
            sum(found, items, to);
        });
    }

    void expand_across(const std::int64_t* slots, std::int64_t items, char* const* to, std::int64_t* scratch) {
        Lists lists(scratch, items * rows());
        const Across sequences(owner_.ring, length_, n(), discounts_.data());
        const Unrolled windows = windows_at(to + windows_);
        sequences.open(items, windows);
        auto* const ids = step_ids_ ? reinterpret_cast<std::int64_t*>(to[step_ids_at_]) : nullptr;
        const auto one = [=, this, &lists](const Across& of, std::int64_t i) {
            const std::int64_t at = i * (time_major_ ? 1 : rows()), shown = i * (time_major_ ? 1 : length_);
            const auto list = [&](auto step) {
                const Around found = of.list(slots[i], i, at, step, lists, windows.from(shown, step));
                if (ids) of.ids(found, lists.before + at, step, ids + shown);
                return found;
            };
            return time_major_ ? list(items) : list(std::integral_constant<std::int64_t, 1>());
        };
        const std::int64_t behind = find(slots, items, to, sequences, one);
        const std::int64_t* const rows_of[2] = {lists.observed, lists.before};
        // Parts with memory of their own are copied while what they are parts of is in the nearest caches.
        constexpr std::int64_t NEAR = 1 << 15;
        const std::int64_t units = time_major_ ? rows() : items, unit = time_major_ ? items : rows();
        const auto near =
            std::max<std::int64_t>(1, NEAR / std::int64_t(gather_.bytes() + 1) / std::max<std::int64_t>(1, unit));
        owner_.read(behind, items * rows(), [&] {
            for (std::int64_t first = 0; first < units; first += near) {
                const std::int64_t last = std::min(first + near, units);
                gather_.copy_near(to, rows_of, first * unit, npy_intp(last - first) * unit);
                copy_owns(first, last, items, to);
            }
            sum(nullptr, items, to);
            join(lists, items, to);
        });
    }

    // Finds the sequences, each by a call of `one`, and writes down what is known of them. Returns by how many rows, at
    // most, one of theirs lies behind its lane's head.
    template <typename Of, typename One>
    std::int64_t find(const std::int64_t* slots, std::int64_t items, char* const* to, Of sequences, One one) {
        constexpr std::int64_t DEEP = 16;
        std::int64_t behind = 0;
        run(items, [&] {
            for (std::int64_t i = 0; i < std::min(DEEP, items); ++i) sequences.fetch(slots[i]);
            for (std::int64_t i = 0; i < items; ++i) {
                if (i + DEEP < items) sequences.fetch(slots[i + DEEP]);
                const Around& now = one(sequences, i);
                reinterpret_cast<std::int64_t*>(to[ids_])[i] = id_of(now);
                if (first_) reinterpret_cast<std::uint8_t*>(to[firsts_])[i] = now.first;
                const std::int64_t back = burn_in_ - now.lead, row = now.row - back;
                // The row before it is read, too.
                behind = std::max(behind, owner_.ring.position(now.number).head - row + 1);
                for (size_t s = 0; s < states_.size(); ++s)
                    states_[s].copy(back, row, now.number, owner_.ring.lanes, to[gather_.size() + s], i);
            }
        });
        return behind;
    }
    std::int64_t id_of(const Around& found) const { return found.row * owner_.ring.lanes + found.number; }

    // Put in, across episodes, the successors that are other observations than those n positions on, and zeros where
    // an episode begins behind an end.
    void join(const Lists& lists, std::int64_t items, char* const* to) const {
        const auto put = [&](size_t column, size_t field, std::int64_t positions, auto rows_of) {
            with_rows_of(gather_.row(column), [&](auto row) {
                const std::int64_t later = time_major_ ? items : 1, next = time_major_ ? 1 : positions;
                for (const Joint* joint = lists.joints; joint != lists.last; ++joint)
                    rows_of(*joint, [&](std::int64_t i, std::int64_t from) {
                        row.copy(to[field] + row.n * size_t(joint->item * next + i * later), gather_.at(column, from));
                    });
            });
        };
        for (const Own& own : owns_)
            if (!gather_.pick(own.column))
                put(own.column, own.field, length_, [this](const Joint& joint, auto copy) {
                    for (std::int64_t i = joint.first; i < std::min<std::int64_t>(joint.end, length_); ++i)
                        copy(i, joint.after);
                });
        for (size_t c = 0; c < shown_.size(); ++c)
            if (gather_.pick(c) && shown_[c].size() > 1)
                put(c, c, rows(), [this](const Joint& joint, auto copy) {
                    if (joint.begins) copy(joint.end, owner_.ring.zero_row());
                });
    }

    // Copy the parts with memory of their own from items, or from positions, that are there.
    void copy_owns(std::int64_t first, std::int64_t last, std::int64_t items, char* const* to) const {
        for (const Own& own : owns_) {
            const size_t row = gather_.row(own.column);
            const auto copy = [&](std::int64_t from, std::int64_t at, std::int64_t count) {
                copy_bytes(to[own.field] + row * size_t(at), to[own.column] + row * size_t(from), row * size_t(count));
            };
            if (!time_major_) {
                for (std::int64_t i = first; i < last; ++i) copy(i * rows() + own.begin, i * length_, length_);
                continue;
            }
            const std::int64_t begin = std::max<std::int64_t>(first, own.begin);
            const std::int64_t end = std::min<std::int64_t>(last, own.begin + length_);
            if (begin < end) copy(begin * items, (begin - own.begin) * items, (end - begin) * items);
        }
    }

    template <typename T>
    Sheet sheet(std::int64_t items) const {
        const auto width = std::int64_t(gather_.row(size_t(summed_)) / sizeof(T));
        return {items, length_, rows(), width, time_major_};
    }
    // Sum rewards over windows of several steps; without `found`, across episodes, of windows that were noted.
    void sum(const Stretch* found, std::int64_t items, char* const* to) const {
        if (summed_ < 0 || n() == 1) return;
        single_ ? sum<float>(found, items, to) : sum<double>(found, items, to);
    }
    template <typename T>
    void sum(const Stretch* found, std::int64_t items, char* const* to) const {
        const auto c = size_t(summed_);
        const Sheet sheet = this->sheet<T>(items);
        if (!found)
            return fold_sequences(reinterpret_cast<const T*>(to[c]), windows_at(to + windows_).steps, gammas_.data(),
                                  sheet, reinterpret_cast<T*>(to[sums_]));
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
