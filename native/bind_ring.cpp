// Binds the ring and the gather. Arguments are those of relive._kernels_numpy.ring and valid already.
#include "bind_plans.hpp"

namespace relive {
namespace {

// Copies rows of many columns, row by row, so that all columns' misses of one row are in flight together.
class PyGather {
public:
    PyGather(nb::list columns, nb::list picks) : keep_(columns) {
        for (nb::handle column : columns) columns_.push_back(column_of(column));
        for (nb::handle pick : picks) picks_.push_back(nb::cast<size_t>(pick));
        for (std::size_t c = 0; c < columns_.size(); ++c) add_to_spans(spans_, columns_[c], picks_[c]);
    }

    void take(nb::handle rows, nb::list outs) const {
        std::vector<const std::int64_t*> from;
        for (nb::handle chosen_rows : rows) from.push_back(data<std::int64_t>(chosen_rows));
        copy(from.data(), outs, PyArray_SIZE(array(nb::object(rows[0]))));
    }

    // The windows that start at `places`, and copies of their rows.
    nb::object expand(const PyRing& owner, nb::handle places, nb::handle discounts, nb::handle given) const {
        const Windows windows(owner, places, discounts);
        nb::list outs = given.is_none() ? fresh_outs(windows.n) : nb::borrow<nb::list>(given);
        const std::int64_t* rows[] = {windows.at.data, windows.after.data};
        windows.fill();
        copy(rows, outs, windows.n);
        return nb::make_tuple(windows.ids.array, windows.at.array, windows.after.array, windows.steps,
                              windows.discounts, windows.terminated, windows.truncated, outs);
    }

    nb::object taken(nb::handle rows) const {
        nb::list outs = fresh_outs(PyArray_SIZE(array(nb::object(rows[0]))));
        take(rows, outs);
        return outs;
    }

private:
    nb::list keep_;
    std::vector<Column> columns_;
    std::vector<Span> spans_;
    std::vector<size_t> picks_;

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
        if (outs.size() != columns_.size()) throw nb::value_error("one output for every column");
        std::vector<Job> jobs;
        for (std::size_t c = 0; c < columns_.size(); ++c)
            jobs.push_back(
                {columns_[c].data, data<char>(outs[c]), rows[picks_[c]], columns_[c].row, columns_[c].stride});
        std::vector<Fetch> fetches;
        for (const Span& span : spans_) fetches.push_back({span.data, rows[span.pick], span.bytes, span.stride});
        run(n, [&] { chosen().gather(jobs.data(), jobs.size(), fetches.data(), fetches.size(), n); });
    }
};

}  // namespace
}  // namespace relive

void bind_ring(nanobind::module_& m) {
    using namespace relive;
    nb::class_<PyRing>(m, "Ring")
        .def(nb::init<nb::list, size_t, nb::tuple, nb::tuple>())
        .def("attach", &PyRing::attach, nb::arg().none(), nb::arg())
        .def("push", &PyRing::push, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
             nb::arg().none(), nb::arg().none(), nb::arg())
        .def("write", &PyRing::write, nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg())
        .def("cut", &PyRing::cut)
        .def("ids", &PyRing::ids)
        .def("locate", &PyRing::locate)
        .def("begin_since", &PyRing::begin_since)
        .def("stacks", &PyRing::stacks)
        .def("windows", &PyRing::windows)
        .def("sequences", &PyRing::sequences)
        .def("fold", &PyRing::fold)
        .def_static("fold_sequences", &fold_sequences);
    nb::class_<PyGather>(m, "Gather")
        .def(nb::init<nb::list, nb::list>())
        .def("take", &PyGather::take)
        .def("taken", &PyGather::taken)
        .def("expand", &PyGather::expand, nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
}
