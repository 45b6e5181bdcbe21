// Copies of rows, bound to columns that Python owns; relive._kernels_numpy.gather describes each call.
#include "bind_ring.hpp"

namespace relive {
namespace {

// Copies rows of many columns, row by row, so that all columns' misses of one row are in flight together.
class PyGather {
public:
    PyGather(nb::list columns, nb::list picks) : keep_(columns) {
        require(columns.size() == picks.size(), "relive._native.Gather: one pick for every column");
        for (nb::handle column : columns) columns_.emplace_back(column);
        for (nb::handle pick : picks) picks_.push_back(nb::cast<size_t>(pick));
        for (std::size_t c = 0; c < columns_.size(); ++c) add_to_spans(spans_, columns_[c].column, picks_[c]);
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

    nb::object expand(const PyRing& owner, In<int64_t> slots, In<float> discounts,
                      std::optional<nb::list> given) const {
        for (std::size_t c = 0; c < columns_.size(); ++c)
            require(picks_[c] < 2 && columns_[c].rows == owner.ring.zero_row() + 1,
                    "relive._native.Gather.expand: columns of another ring");
        const std::int64_t* rows[2];
        nb::object windows = owner.windows_of(slots, discounts, rows[0], rows[1]);
        nb::list outs = given ? *given : fresh_outs(npy_intp(slots.size));
        copy(rows, outs, npy_intp(slots.size));
        return plan(plans().expanded, windows, outs);
    }

private:
    nb::tuple keep_;  // not the list, which may change
    std::vector<RowArray> columns_;
    std::vector<Span> spans_;
    std::vector<size_t> picks_;

    std::vector<const std::int64_t*> lists(const nb::list& rows, npy_intp& n) const {
        std::vector<const std::int64_t*> from;
        std::vector<In<int64_t>> given;
        for (nb::handle chosen : rows)
            given.push_back(
                relive::taken<In<int64_t>>(chosen, "relive._native.Gather: rows have to be a list of integers"));
        n = given.empty() ? 0 : npy_intp(given[0].size);
        for (const In<int64_t>& list : given) {
            require(list.size == n, "relive._native.Gather: lists of different lengths");
            from.push_back(list.data);
        }
        std::vector<npy_intp> limits(given.size(), NPY_MAX_INTP);
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            require(picks_[c] < given.size(), "relive._native.Gather: a pick outside the lists");
            limits[picks_[c]] = std::min(limits[picks_[c]], columns_[c].rows);
        }
        for (std::size_t i = 0; i < limits.size(); ++i)
            within(from[i], n, limits[i], "relive._native.Gather: a row outside its column");
        return from;
    }

    nb::list fresh_outs(npy_intp n) const {
        nb::list outs;
        for (nb::handle column : keep_) {
            const int axes = PyArray_NDIM(array(column));
            npy_intp shape[NPY_MAXDIMS];
            shape[0] = n;
            std::copy_n(PyArray_DIMS(array(column)) + 1, axes - 1, shape + 1);
            PyObject* out = PyArray_SimpleNew(axes, shape, PyArray_TYPE(array(column)));
            if (!out) nb::raise_python_error();
            outs.append(nb::steal(out));
        }
        return outs;
    }

    void copy(const std::int64_t* const* rows, const nb::list& outs, npy_intp n) const {
        require(outs.size() == columns_.size(), "relive._native.Gather: one output for every column");
        std::vector<Job> jobs;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const Column& column = columns_[c].column;
            const RowArray out(outs[c], true);
            require(out.rows == n && out.column.row == column.row && out.type == columns_[c].type &&
                        (n <= 1 || out.column.stride == column.row),
                    "relive._native.Gather: an output of another shape");
            jobs.push_back({column.data, out.column.data, rows[picks_[c]], column.row, column.stride});
        }
        std::vector<Fetch> fetches;
        for (const Span& span : spans_) fetches.push_back({span.data, rows[span.pick], span.bytes, span.stride});
        run(n, [&] { chosen().gather(jobs.data(), jobs.size(), fetches.data(), fetches.size(), n); });
    }
};

}  // namespace
}  // namespace relive

void bind_gather(nanobind::module_& m) {
    using namespace relive;
    nb::class_<PyGather>(m, "Gather")
        .def(nb::init<nb::list, nb::list>(), nb::arg("columns"), nb::arg("picks"))
        .def("take", &PyGather::take, nb::arg("rows"), nb::arg("outs"))
        .def("taken", &PyGather::taken, nb::arg("rows"))
        .def("expand", &PyGather::expand, nb::arg("ring"), nb::arg("slots"), nb::arg("discounts"),
             nb::arg("outs").none());
}
