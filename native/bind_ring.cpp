// The ring as a Python object; relive._ring.kernels_numpy.ring describes each call.
#include "bind_ring.hpp"

#include "checks.hpp"

namespace relive {
RowArray::RowArray(nb::handle object, bool writable) {
    if (!PyArray_Check(object.ptr())) throw nb::type_error("relive._ring._native: a column has to be an array");
    PyArrayObject* given = array(object);
    const int axes = PyArray_NDIM(given);
    bool good = axes >= 1 && PyArray_ISNOTSWAPPED(given) && !PyDataType_REFCHK(PyArray_DESCR(given));
    size_t row = size_t(PyArray_ITEMSIZE(given));
    const bool none = PyArray_SIZE(given) == 0;  // then strides mean nothing
    for (int axis = axes - 1; good && axis > 0; --axis) {
        good = none || PyArray_DIM(given, axis) <= 1 || PyArray_STRIDE(given, axis) == npy_intp(row);
        row *= size_t(PyArray_DIM(given, axis));
    }
    good = good && (none || PyArray_DIM(given, 0) <= 1 || PyArray_STRIDE(given, 0) >= npy_intp(row));
    if (!good) throw nb::type_error("relive._ring._native: the rows of a column are not contiguous");
    if (writable && !PyArray_ISWRITEABLE(given)) throw nb::type_error("relive._ring._native: an array is read-only");
    column = {static_cast<char*>(PyArray_DATA(given)), row, size_t(PyArray_STRIDE(given, 0))};
    rows = PyArray_DIM(given, 0);
    type = PyArray_TYPE(given);
}

PyRing::PyRing(nb::list layouts, size_t num_obs, int64_t rows, int64_t steps, InOut<uint8_t, 3> marks,
               InOut<int64_t, 2> counters, InOut<int64_t> clock, nb::object window,
               std::optional<InOut<double, 3>> given, std::optional<InOut<int64_t, 2>> touched, nb::object notify,
               std::optional<In<uint8_t>> busy)
    : keep_(nb::make_tuple(marks.object, counters.object, clock.object, given ? nb::borrow(given->object) : nb::none(),
                           touched ? nb::borrow(touched->object) : nb::none())),
      notify_(std::move(notify)) {
    ring.lanes = marks.shape[1];
    ring.rows = rows;
    ring.kept = steps;
    ring.depth = marks.shape[0] * marks.shape[2];
    while (ring.block() < marks.shape[2]) ++ring.bits;
    ring.prepare();
    require(ring.lanes >= 1 && steps >= 1 && steps <= rows && rows < ring.depth && ring.block() == marks.shape[2],
            "relive._ring._native.Ring: no lane, no step in it, or blocks of another size");
    require(counters.shape[0] == ring.lanes && counters.shape[1] * sizeof(int64_t) == sizeof(Lane) && clock.size == 2,
            "relive._ring._native.Ring: counters of another shape");
    const auto agrees = [&](const npy_intp* shape) { return std::equal(shape, shape + 3, marks.shape); };
    require(!given || agrees(given->shape), "relive._ring._native.Ring: priorities of another shape");
    require(num_obs >= 1 && num_obs <= layouts.size(),
            "relive._ring._native.Ring: more observations than columns, or none");
    ring.num_obs = num_obs;
    ring.marks = marks.data;
    ring.lane_of = reinterpret_cast<Lane*>(counters.data);
    ring.any_given = clock.data + 1;
    ring.given = given ? given->data : nullptr;
    const int64_t groups = Touched::groups_of(ring.lanes);
    require(!touched || (touched->shape[0] == 2 && touched->shape[1] == groups),
            "relive._ring._native.Ring: `touched` is not `[2, groups]`");
    if (touched) {
        ring.touched.begun = touched->data;
        ring.touched.ended = touched->data + groups;
    }
    ring.span = nb::cast<int64_t>(window.attr("span"));
    ring.lookback = nb::cast<int64_t>(window.attr("lookback"));
    ring.starts = nb::cast<int64_t>(window.attr("starts"));
    ring.across = nb::cast<bool>(window.attr("across"));
    require(ring.span >= 1 && ring.lookback >= 0 && ring.starts >= 0 && ring.span <= ring.kept &&
                ring.lookback <= ring.kept,
            "relive._ring._native.Ring: a window that no lane can hold");
    require(!busy || busy->size == ring.lanes, "relive._ring._native.Ring: not one entry for each lane");
    require(sound_counters(ring, busy ? busy->data : nullptr), "relive._ring._native.Ring: counters that no ring has");
    if (!PyCallable_Check(notify_.ptr())) throw nb::type_error("relive._ring._native.Ring: `notify` cannot be called");
    for (nb::handle layout : layouts) ring.add_column(laid_out(layout, ring.columns.size() < num_obs));
    inputs.prepare(layouts, num_obs);
    for (size_t c = 0; c < ring.columns.size(); ++c)
        require(inputs.bytes_of(c) == ring.columns[c].given(), "relive._ring._native.Ring: a value of another size");
}

Column PyRing::laid_out(nb::handle layout, bool observation) {
    const nb::object array = layout.attr("array");
    const RowArray found(array, true);
    columns_.append(array);
    Column column = found.column;
    column.frames = nb::cast<int64_t>(layout.attr("frames"));
    column.repeat = nb::cast<bool>(layout.attr("repeat"));
    column.every = nb::cast<int64_t>(layout.attr("every"));
    column.element = size_t(PyArray_ITEMSIZE(relive::array(array)));
    require(column.frames >= 1 && column.frames - 1 <= ring.lookback,
            "relive._ring._native.Ring: more frames than a window looks back");
    require(column.every >= 0 && !(column.every && observation), "relive._ring._native.Ring: kept at no steps");
    if (column.every) {
        column.slots = found.rows / ring.lanes;
        require(column.slots >= 1 && column.slots * ring.lanes == found.rows,
                "relive._ring._native.Ring: rows of state");
    } else {
        require(found.rows == ring.zero_row() + 1, "relive._ring._native.Ring: a column of another length");
    }
    return column;
}

void PyRing::check_lanes(const In<int64_t>& numbers) const {
    within(numbers.data, numbers.size, ring.lanes, "relive._ring._native.Ring: a lane outside the ring");
    require(all_different(numbers.data, numbers.size, ring.lanes), "relive._ring._native.Ring: a lane twice");
}

std::vector<const char*> PyRing::checked_values(const nb::list& values, size_t count, npy_intp n,
                                                npy_intp length) const {
    require(values.size() == count, "relive._ring._native.Ring.write: one array for every column");
    std::vector<const char*> from;
    for (size_t c = 0; c < count; ++c) {
        const nb::handle value = values[c];
        if (!PyArray_Check(value.ptr()) || !PyArray_ISCARRAY_RO(array(value)) ||
            PyArray_TYPE(array(value)) != PyArray_TYPE(array(columns_[c])))
            throw nb::type_error("relive._ring._native.Ring.write: a value is not the array it has to be");
        const npy_intp* shape = PyArray_DIMS(array(value));
        require(PyArray_NDIM(array(value)) >= 2 && shape[0] == n && shape[1] == length &&
                    size_t(PyArray_NBYTES(array(value))) == size_t(n * length) * ring.columns[c].given(),
                "relive._ring._native.Ring.write: a value of another size");
        from.push_back(static_cast<const char*>(PyArray_DATA(array(value))));
    }
    return from;
}

// Only noted here; the buffer gives the warning once its lock is released.
void PyRing::notice() {
    if (!ring.notable()) return;
    const uint8_t found = ring.notices();
    if (!found) return;
    pending_ = true;
    notify_(int(found));
}

nb::object PyRing::write(nb::list values, std::optional<nb::list> nexts, In<bool, 2> terminated, In<bool, 2> truncated,
                         In<int64_t> numbers, std::optional<In<double, 2>> priority) {
    const npy_intp n = terminated.shape[0], length = terminated.shape[1];
    const auto agrees = [&](const npy_intp* shape) { return shape[0] == n && shape[1] == length; };
    require(numbers.size == n && agrees(truncated.shape) && (!priority || (agrees(priority->shape) && ring.given)),
            "relive._ring._native.Ring.write: shapes differ");
    check_lanes(numbers);
    require(!priority || all_priorities(priority->data, priority->size),
            "relive._ring._native.Ring.write: a priority that is negative or not finite");
    const auto from = checked_values(values, ring.columns.size(), n, length);
    const auto to = nexts ? checked_values(*nexts, ring.num_obs, n, length) : std::vector<const char*>();
    const Steps steps{from.data(),
                      nexts ? to.data() : nullptr,
                      reinterpret_cast<const uint8_t*>(terminated.data),
                      reinterpret_cast<const uint8_t*>(truncated.data),
                      priority ? priority->data : nullptr,
                      numbers.data,
                      n,
                      length};
    Out<std::int64_t> ids(std::vector<npy_intp>{n, length});
    put(steps, ids.data);
    notice();
    return ids.array;
}

// A step takes its own row, one for the successor of the step before, if that turns out to be no step's observation,
// and one for its final observation; older frames come before both observations.
void PyRing::put(const Steps& steps, int64_t* ids) {
    if (readers_ && steps.length > room_ / (3 + 2 * ring.lookback)) wait_for_readers();
    const auto head = [&](int64_t i) { return ring.lane_of[steps.numbers ? steps.numbers[i] : i].head; };
    heads_.clear();
    for (int64_t i = 0; i < steps.n && readers_; ++i) heads_.push_back(head(i));
    run(steps.n * steps.length, [&] { ring.write(steps, ids); });
    int64_t most = 0;
    for (size_t i = 0; i < heads_.size(); ++i) most = std::max(most, head(int64_t(i)) - heads_[i]);
    room_ -= most;
}

// They need nothing that this thread has.
void PyRing::wait_for_readers() const {
    Away away;
    while (readers_) std::this_thread::yield();
}

void PyRing::cut(In<int64_t> numbers) {
    check_lanes(numbers);
    if (readers_) wait_for_readers();
    ring.cut(numbers.data, numbers.size);
    notice();
}

nb::object PyRing::changes(In<int64_t, 2> seen) const {
    require(seen.shape[0] == ring.lanes && seen.shape[1] == 3,
            "relive._ring._native.Ring.changes: `seen` is not `[L, 3]`");
    const auto* before = reinterpret_cast<const Seen*>(seen.data);
    std::vector<int64_t> gone, come, rows;
    Out<std::int64_t> now(std::vector<npy_intp>{npy_intp(ring.lanes), 3});
    const bool known = all_changes(ring, before, reinterpret_cast<Seen*>(now.data), gone, come, rows);
    require(known, "relive._ring._native.Ring.changes: `seen` was never seen");
    return plan(plans().changes, listed_of(gone), listed_of(come), listed_of(rows), now.array);
}

void PyRing::limit(std::optional<InOut<int64_t>> limits) {
    if (limits) require(limits->size == ring.lanes, "relive._ring._native.Ring.limit: not one for each lane");
    limit_ = limits ? limits->data : nullptr;
    limits_ = limits ? nb::borrow(limits->object) : nb::none();
}

void PyRing::allow(std::optional<InOut<uint8_t>> lanes) {
    if (lanes) require(lanes->size == ring.lanes, "relive._ring._native.Ring.allow: not one for each lane");
    allowed_ = lanes ? lanes->data : nullptr;
    ring.touched.shared = allowed_;
    lanes_ = lanes ? nb::borrow(lanes->object) : nb::none();
}

bool PyRing::reaches_limit(const Steps& steps) const {
    if (!limit_ && !allowed_) return false;
    // A step takes a row, one for a final observation, and with both of them older frames.
    const int64_t most = (2 + 2 * ring.lookback) * (steps.length + 1);
    for (int64_t i = 0; i < steps.n; ++i) {
        const int64_t lane = steps.numbers ? steps.numbers[i] : i;
        if (allowed_ && !allowed_[lane]) return true;
        if (limit_ && ring.lane_of[lane].head + most > limit_[lane]) return true;
    }
    return false;
}

}  // namespace relive

void bind_ring(nanobind::module_& m) {
    using namespace relive;
    nb::class_<PyRing>(m, "Ring")
        .def(nb::init<nb::list, size_t, int64_t, int64_t, InOut<uint8_t, 3>, InOut<int64_t, 2>, InOut<int64_t>,
                      nb::object, std::optional<InOut<double, 3>>, std::optional<InOut<int64_t, 2>>, nb::object,
                      std::optional<In<uint8_t>>>(),
             nb::arg("columns"), nb::arg("num_obs"), nb::arg("rows"), nb::arg("steps"), nb::arg("marks"),
             nb::arg("counters"), nb::arg("clock"), nb::arg("window"), nb::arg("given").none(),
             nb::arg("touched").none(), nb::arg("notify"), nb::arg("busy").none())
        .def_prop_rw(
            "watched", [](const PyRing& owner) { return int(owner.ring.watched); },
            [](PyRing& owner, uint8_t notices) { owner.watch(notices); })
        .def_prop_rw(
            "enough_ends", [](const PyRing& owner) { return owner.ring.enough_ends; },
            [](PyRing& owner, int64_t ends) { owner.ring.enough_ends = ends; })
        .def_ro("asked", &PyRing::asked)
        .def("limit", &PyRing::limit, nb::arg("limits").none())
        .def("allow", &PyRing::allow, nb::arg("lanes").none())
        .def("look", &PyRing::look)
        .def_prop_ro("ready", [](const PyRing& owner) { return listed_of(owner.ready.rows); })
        .def_prop_ro("taken", [](const PyRing& owner) { return listed_of(owner.ready.taken); })
        .def_prop_ro("came", [](const PyRing& owner) { return owner.ready.came; })
        .def_prop_ro("outrun", [](const PyRing& owner) { return owner.ready.outrun; })
        .def_prop_rw(
            "partial", [](const PyRing& owner) { return owner.ring.partial; },
            [](PyRing& owner, bool partial) { owner.ring.partial = partial; })
        .def("admit", &PyRing::admit, nb::arg("from_").none(), nb::arg("until").none())
        .def("took", &PyRing::took, nb::arg("until").none(), nb::arg("outrun"))
        .def("overtaken", &PyRing::overtaken, nb::arg("ids"))
        .def("snapshot", &PyRing::snapshot)
        .def("sums", &PyRing::sums)
        .def("forget_sums", [](PyRing& owner) { owner.ring.forget_sums(); })
        .def("write", &PyRing::write, nb::arg("values"), nb::arg("next_values").none(), nb::arg("terminated"),
             nb::arg("truncated"), nb::arg("lanes"), nb::arg("priority").none())
        .def("cut", &PyRing::cut, nb::arg("lanes"))
        .def("changes", &PyRing::changes, nb::arg("seen"))
        .def("ids", &PyRing::ids, nb::arg("slots"))
        .def("drawable", &PyRing::drawable)
        .def("locate", &PyRing::locate, nb::arg("ids"))
        .def("standing", &PyRing::standing, nb::arg("ids"))
        .def("follow", &PyRing::follow, nb::arg("ids"), nb::arg("steps"))
        .def("stacks", &PyRing::stacks, nb::arg("newest"), nb::arg("frames"), nb::arg("repeat"))
        .def("around", &PyRing::around, nb::arg("slots"), nb::arg("offsets"), nb::arg("repeat"))
        .def("windows", &PyRing::windows, nb::arg("slots"), nb::arg("discounts"))
        .def("fold", &PyRing::fold, nb::arg("column"), nb::arg("starts"), nb::arg("steps"), nb::arg("gammas"))
        .def("chunks", &PyRing::chunks, nb::arg("column"), nb::arg("starts"), nb::arg("steps"), nb::arg("length"))
        .def_static("fold_sequences", &fold_given, nb::arg("rewards"), nb::arg("steps"), nb::arg("gammas"),
                    nb::arg("time_major"));
}
