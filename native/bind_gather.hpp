// Copies of rows, bound to columns that Python owns; relive._ring.kernels_numpy.gather describes each call.
#pragma once

#include "bind_ring.hpp"
#include "pages.hpp"

namespace relive {

// Copies rows of many columns, row by row, so that all columns' misses of one row are in flight together.
class PyGather {
public:
    PyGather(nb::list columns, nb::list picks, bool mapped) : keep_(columns), pages_(mapped) {
        require(columns.size() == picks.size(), "relive._ring._native.Gather: one pick for every column");
        for (nb::handle column : columns) columns_.emplace_back(column);
        for (nb::handle pick : picks) picks_.push_back(nb::cast<size_t>(pick));
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            add_to_spans(spans_, columns_[c].column, picks_[c]);
            add_to_spans(records_, columns_[c].column, 0);
            bytes_ += columns_[c].column.row;
        }
    }

    void take(nb::list rows, nb::list outs) const {
        npy_intp n;
        const auto from = lists(rows, n);
        copy(from.data(), outs, n);
    }

    nb::object taken(nb::list rows) const {
        npy_intp n;
        const auto from = lists(rows, n);
        nb::list outs = fresh_outs(n);
        copy(from.data(), outs, n);
        return outs;
    }

    nb::object expand(PyRing& owner, In<int64_t> slots, In<float> discounts, bool last,
                      std::optional<nb::list> given) const {
        check_of(owner, "relive._ring._native.Gather.expand: columns of another ring");
        const std::int64_t* rows[2];
        std::int64_t behind;
        nb::object windows = owner.windows_of(slots, discounts, rows[0], rows[1], behind);
        nb::list outs = given ? *given : fresh_outs(npy_intp(slots.size));
        copy(rows, outs, npy_intp(slots.size), [&](std::int64_t n, auto&& kernel) {
            if (last)
                owner.read(behind, n, kernel);
            else
                run(n, kernel);
        });
        return plan(plans().expanded, windows, outs);
    }

    // The items that get another goal, with the rows of what was achieved then (pick 0), after each step of their
    // windows (pick 1), and of the steps themselves (pick 2).
    nb::object relabelled(const PyRing& owner, In<int64_t> slots, In<double, 2> numbers, double ratio, int64_t n_step,
                          int64_t strategy) const {
        check_of(owner, "relive._ring._native.Gather.relabelled: columns of another ring", 3);
        const Relabelling of = owner.relabelling(slots, numbers, ratio, n_step, strategy);
        const std::int64_t* rows[3] = {of.goals.values.get(), of.after.values.get(), of.rows.values.get()};
        const auto n = npy_intp(of.rows.size);
        nb::list outs = fresh_outs(n);
        copy(rows, outs, n);
        const auto listed = [](const Relabelling::List& list) { return listed_of(list.values.get(), list.size); };
        return plan(plans().relabelled, listed(of.which), listed(of.ids), listed(of.ahead), listed(of.item),
                    listed(of.ages), listed(of.after), outs);
    }

    // What stands at the positions of sequences: observations (pick 0), or the steps before them (pick 1).
    nb::object unroll(const PyRing& owner, In<int64_t> slots, int64_t length, In<float> discounts, bool time_major,
                      bool listed, std::optional<nb::list> given, int64_t burn_in) const {
        check_of(owner, "relive._ring._native.Gather.unroll: columns of another ring");
        require(length >= 1 && length <= owner.ring.rows && discounts.size <= owner.ring.rows + 1,
                "relive._ring._native.Gather.unroll: longer than a lane");
        const npy_intp items = npy_intp(slots.size), positions = npy_intp(length + discounts.size - 1);
        nb::list outs = given ? *given : fresh_outs(items * positions);
        const std::vector<char*> to = outputs(outs, items * positions);
        const Ring& ring = owner.ring;
        const Pages::Reading reading(pages_);
        nb::object plan_of = owner.sequences_of(
            slots, length, discounts, burn_in, listed,
            [&](int64_t item, const Sequence& sequence, const Sequence* next) {
                if (!item && reading.missing()) {
                    Sequence other;
                    for (npy_intp i = 0; i < items; ++i) {
                        Sequences(ring, length, discounts.size - 1, discounts.data, burn_in).find(slots.data[i], other);
                        ask(ring, other);
                    }
                }
                copy_sequence(ring, sequence, next, item, {items, positions, time_major}, to.data());
            });
        return plan(plans().sequenced, plan_of, outs);
    }

    // The arrays that sequences are copied to.
    struct Places {
        std::int64_t items, positions;
        bool time_major;
    };

    // Copy a sequence as one of these items; `next` will be copied next, if there is one.
    template <typename Found>
    void copy_sequence(const Ring& ring, const Found& sequence, const Found* next, std::int64_t item,
                       const Places& places, char* const* to) const {
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            if (next) fetch(ring, *next, c);
            const std::size_t row = columns_[c].column.row;
            const std::size_t step = row * std::size_t(places.time_major ? places.items : 1);
            const std::size_t begin = row * std::size_t(places.time_major ? item : item * places.positions);
            Copy copy{ring, columns_[c].column, to[c] + begin, step, places.positions};
            if (sequence.lead)
                copy.repeat(
                    picks_[c] ? ring.zero_row() : ring.storage_row(sequence.number, runs_of(sequence)[0].memory),
                    sequence.lead);
            if (picks_[c]) copy.repeat(sequence.before, 1);
            for (const Run& run : runs_of(sequence)) copy.run(sequence.number, run);
            copy.repeat(picks_[c] ? ring.zero_row() : sequence.behind, copy.left);
        }
    }

    // Fetch the first rows of a sequence.
    template <typename Found>
    void fetch(const Ring& ring, const Found& sequence) const {
        for (std::size_t c = 0; c < columns_.size(); ++c) fetch(ring, sequence, c);
    }
    // How many sequences ahead their rows are fetched.
    static std::int64_t ahead(const Ring& ring) { return ring.lanes == 1 ? 4 : 1; }

    // Exists while the columns are read.
    Pages::Reading reading() const { return Pages::Reading(pages_); }

    // Ask for the rows of a sequence that are not in memory.
    template <typename Found>
    void ask(const Ring& ring, const Found& sequence) const {
        Sequences::strips(ring, sequence, [&](std::int64_t row, std::int64_t count) {
            for (const Span& span : records_)
                Pages::ask(span.data + std::size_t(row) * span.stride,
                           std::size_t(count - 1) * span.stride + span.bytes);
        });
    }

    // Copy the rows that each column's pick has.
    template <typename Run>
    void copy_to(char* const* to, const std::int64_t* const* rows, npy_intp n, Run&& run_kernel) const {
        copy_part(to, rows, 0, n, spans_, std::forward<Run>(run_kernel));
    }
    // The same from an entry of the lists on; rows of all picks lie near those of the first.
    void copy_near(char* const* to, const std::int64_t* const* rows, std::int64_t begin, npy_intp n) const {
        copy_part(to, rows, begin, n, records_, [](auto, auto&& kernel) { kernel(); });
    }

    // Whether many rows may be on their way before the first of them is copied.
    bool small() const { return bytes_ <= SMALL && columns_.size() <= FEW && !pages_.mapped(); }
    // Fetch what a row of a pick touches.
    RELIVE_INLINE void fetch(std::int64_t row, std::size_t pick) const {
        for (const Span& span : spans_)
            if (span.pick == pick) prefetch_row(span.data + std::size_t(row) * span.stride, span.bytes);
    }
    // Fetch what the rows of an item touch.
    RELIVE_INLINE void fetch(const std::int64_t* const* rows, std::int64_t item) const {
        for (const Span& span : spans_)
            prefetch_row(span.data + std::size_t(rows[span.pick][item]) * span.stride, span.bytes);
    }
    // Copy the rows of some items, which were fetched before.
    void copy_fetched(char* const* to, const std::int64_t* const* rows, std::int64_t begin, std::int64_t end) const {
        Job jobs[FEW];
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const Column& column = columns_[c].column;
            jobs[c] = {column.data, to[c] + column.row * std::size_t(begin), rows[picks_[c]] + begin, column.row,
                       column.stride};
        }
        chosen().gather(jobs, columns_.size(), nullptr, 0, end - begin);
    }

    std::size_t size() const { return columns_.size(); }
    // Bytes of a row of all columns.
    std::size_t bytes() const { return bytes_; }
    std::size_t pick(std::size_t c) const { return picks_[c]; }
    const char* at(std::size_t c, std::int64_t row) const { return columns_[c].column.at(row); }
    // An array for n rows of a column; `by_number`: the first number of all rows comes first in memory.
    nb::object fresh_out(std::size_t c, npy_intp n, bool by_number = false) const {
        const int axes = PyArray_NDIM(array(keep_[c]));
        npy_intp shape[NPY_MAXDIMS];
        shape[0] = n;
        std::copy_n(PyArray_DIMS(array(keep_[c])) + 1, axes - 1, shape + 1);
        PyObject* out = PyArray_EMPTY(axes, shape, type(c), by_number);
        if (!out) nb::raise_python_error();
        return nb::steal(out);
    }
    // How many numbers a row of a column has, of one axis; else 0.
    npy_intp numbers(std::size_t c) const {
        return PyArray_NDIM(array(keep_[c])) == 2 ? PyArray_DIMS(array(keep_[c]))[1] : 0;
    }
    int type(std::size_t c) const { return columns_[c].type; }
    std::size_t row(std::size_t c) const { return columns_[c].column.row; }
    std::size_t step(std::size_t c) const { return columns_[c].column.stride; }
    nb::handle column(std::size_t c) const { return keep_[c]; }
    // What a row of all columns touches, by picks.
    const std::vector<Span>& spans() const { return spans_; }

    // Refuse columns of another ring than this one, or of more lists of rows: of anchors and of their successors.
    void check_of(const PyRing& owner, const char* what, std::size_t lists = 2) const {
        for (std::size_t c = 0; c < columns_.size(); ++c)
            require(picks_[c] < lists && columns_[c].rows == owner.ring.zero_row() + 1, what);
    }

private:
    // Fills the positions of one item's column, one after the other.
    struct Copy {
        const Ring& ring;
        const Column& column;
        char* to;
        std::size_t step;
        std::int64_t left;

        void run(std::int64_t number, const Run& steps) {
            std::int64_t count = std::min(steps.count, left);
            for (std::int64_t memory = steps.memory; count > 0;) {
                const std::int64_t n = std::min(count, ring.together(memory));
                strip(ring.storage_row(number, memory), column.stride, n);
                memory = ring.wrapped(memory + n);
                count -= n;
            }
        }
        void repeat(std::int64_t row, std::int64_t count) { strip(row, 0, count); }

    private:
        void strip(std::int64_t row, std::size_t from_step, std::int64_t count) {
            chosen().copy_strip({column.at(row), to, column.row, from_step, step}, count);
            to += step * std::size_t(count);
            left -= count;
        }
    };

    template <typename Run>
    void copy_part(char* const* to, const std::int64_t* const* rows, std::int64_t begin, npy_intp n,
                   const std::vector<Span>& spans, Run&& run_kernel) const {
        Job few_jobs[FEW];
        Fetch few_fetches[FEW];
        std::vector<Job> jobs(columns_.size() > FEW ? columns_.size() : 0);
        std::vector<Fetch> fetches(spans.size() > FEW ? spans.size() : 0);
        Job* const job = jobs.empty() ? few_jobs : jobs.data();
        Fetch* const fetch = fetches.empty() ? few_fetches : fetches.data();
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const Column& column = columns_[c].column;
            job[c] = {column.data, to[c] + column.row * std::size_t(begin), rows[picks_[c]] + begin, column.row,
                      column.stride};
        }
        for (std::size_t s = 0; s < spans.size(); ++s)
            fetch[s] = {spans[s].data, rows[spans[s].pick] + begin, spans[s].bytes, spans[s].stride};
        run_kernel(n, [&] {
            const Pages::Reading reading(pages_);
            if (reading.missing()) ask(fetch, spans.size(), n);
            chosen().gather(job, columns_.size(), fetch, spans.size(), n);
        });
    }

    static void ask(const Fetch* fetches, std::size_t spans, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i)
            for (std::size_t s = 0; s < spans; ++s)
                Pages::ask(fetches[s].from + std::size_t(fetches[s].rows[i]) * fetches[s].stride, fetches[s].bytes);
    }

    // A share of a sequence's rows is fetched while each column of an earlier one is copied. Rows of a single lane lie
    // together, and the hardware fetches them by itself, but for the first ones.
    template <typename Found>
    void fetch(const Ring& ring, const Found& next, std::size_t part) const {
        const auto parts = std::int64_t(columns_.size());
        if (ring.lanes == 1) {
            if (part < records_.size()) fetch_strips(ring, next, records_[part]);
            return;
        }
        for (const Run& run : runs_of(next)) {
            const std::int64_t begin = run.count * std::int64_t(part) / parts;
            const std::int64_t end = run.count * (std::int64_t(part) + 1) / parts;
            std::int64_t row = ring.storage_row(next.number, ring.wrapped(run.memory + begin));
            for (std::int64_t i = begin; i < end; ++i, row = ring.next_row(row))
                for (const Span& span : records_) prefetch_row(span.data + std::size_t(row) * span.stride, span.bytes);
        }
    }

    template <typename Found>
    static void fetch_strips(const Ring& ring, const Found& next, const Span& span) {
        constexpr std::size_t FIRST = 2048;
        Sequences::strips(ring, next, [&](std::int64_t row, std::int64_t count) {
            const char* const from = span.data + std::size_t(row) * span.stride;
            const std::size_t bytes = std::min(FIRST, std::size_t(count) * span.stride);
            for (std::size_t i = 0; i < bytes; i += 64) RELIVE_PREFETCH(from + i);
        });
    }

    static constexpr std::size_t FEW = 24;

    nb::tuple keep_;  // not the list, which may change
    std::vector<RowArray> columns_;
    std::vector<Span> spans_, records_;  // what a row of all columns touches: by picks, and as if there were one list
    std::vector<size_t> picks_;
    std::size_t bytes_ = 0;  // of an item
    Pages pages_;

    std::vector<const std::int64_t*> lists(const nb::list& rows, npy_intp& n) const {
        std::vector<const std::int64_t*> from;
        std::vector<In<int64_t>> given;
        for (nb::handle chosen : rows)
            given.push_back(
                relive::taken<In<int64_t>>(chosen, "relive._ring._native.Gather: rows have to be a list of integers"));
        n = given.empty() ? 0 : npy_intp(given[0].size);
        for (const In<int64_t>& list : given) {
            require(list.size == n, "relive._ring._native.Gather: lists of different lengths");
            from.push_back(list.data);
        }
        std::vector<npy_intp> limits(given.size(), NPY_MAX_INTP);
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            require(picks_[c] < given.size(), "relive._ring._native.Gather: a pick outside the lists");
            limits[picks_[c]] = std::min(limits[picks_[c]], columns_[c].rows);
        }
        for (std::size_t i = 0; i < limits.size(); ++i)
            within(from[i], n, limits[i], "relive._ring._native.Gather: a row outside its column");
        return from;
    }

    nb::list fresh_outs(npy_intp n) const {
        nb::list outs;
        for (std::size_t c = 0; c < size(); ++c) outs.append(fresh_out(c, n));
        return outs;
    }

    // Where each column's n rows go.
    std::vector<char*> outputs(const nb::list& outs, npy_intp n) const {
        require(outs.size() == columns_.size(), "relive._ring._native.Gather: one output for every column");
        std::vector<char*> to;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const RowArray out(outs[c], true);
            require(out.rows == n && out.column.row == columns_[c].column.row && out.type == columns_[c].type &&
                        (n <= 1 || out.column.stride == columns_[c].column.row),
                    "relive._ring._native.Gather: an output of another shape");
            to.push_back(out.column.data);
        }
        return to;
    }

    void copy(const std::int64_t* const* rows, const nb::list& outs, npy_intp n) const {
        copy(rows, outs, n, [](std::int64_t items, auto&& kernel) { run(items, kernel); });
    }

    template <typename Run>
    void copy(const std::int64_t* const* rows, const nb::list& outs, npy_intp n, Run&& run_kernel) const {
        copy_to(outputs(outs, n).data(), rows, n, std::forward<Run>(run_kernel));
    }
};

// Sequences for the native `sample`.
nb::object sequences_of_single(nb::object gather, nb::object ring, std::int64_t length, In<float> discounts,
                               bool time_major, nb::list shown, std::int64_t summed, In<double> gammas, nb::list states,
                               bool step_ids, std::int64_t burn_in, bool first);

// Windows of other offsets for each field, likewise.
nb::object windows_of_single(nb::object gather, nb::object ring, nb::list keys, nb::list offsets, nb::list masks,
                             bool repeat, nb::object targets);

// Transitions of which a share gets another goal, likewise.
nb::object goals_of_single(nb::object gather, nb::object ring, nb::object item, nb::list keys, double ratio,
                           int64_t n_step, int64_t strategy, nb::object outcomes, nb::object reward);

}  // namespace relive
