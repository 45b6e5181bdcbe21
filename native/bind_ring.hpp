// The ring as a Python object. Arguments are those of relive._kernels_numpy.ring and valid already.
#pragma once

#include <nanobind/stl/string.h>

#include <string>

#include "input.hpp"
#include "kernels.hpp"
#include "numpy_api.hpp"
#include "ring.hpp"

namespace relive {

// Items fetched ahead of their use: enough misses in flight to hide the memory's latency.
constexpr std::int64_t DEEP = 32;

inline PyArrayObject* array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

template <typename T>
T* data(nb::handle object) {
    return static_cast<T*>(PyArray_DATA(array(object)));
}

inline nb::object fresh(int type, std::vector<npy_intp> shape) {
    PyObject* made = PyArray_SimpleNew(int(shape.size()), shape.data(), type);
    if (!made) nb::raise_python_error();
    return nb::steal(made);
}

inline nb::object fresh(const std::vector<std::int64_t>& values) {
    Out<std::int64_t> made(std::int64_t(values.size()));
    if (!values.empty()) std::memcpy(made.data, values.data(), values.size() * sizeof(std::int64_t));
    return made.array;
}

// Columns are contiguous but for the step from row to row.
inline Column column_of(nb::handle object) {
    PyArrayObject* column = array(object);
    std::size_t row = std::size_t(PyArray_ITEMSIZE(column));
    for (int axis = 1; axis < PyArray_NDIM(column); ++axis) row *= std::size_t(PyArray_DIM(column, axis));
    return {data<char>(object), row, std::size_t(PyArray_STRIDE(column, 0))};
}

class PyRing {
public:
    PyRing(nb::list layouts, size_t num_obs, nb::tuple arrays, nb::tuple anchors)
        : keep_(nb::make_tuple(layouts, arrays)) {
        const npy_intp* shape = PyArray_DIMS(array(nb::object(arrays[0])));
        ring_.num_lanes = shape[0];
        ring_.rows = shape[1];
        ring_.num_obs = num_obs;
        ring_.marks = data<uint8_t>(nb::object(arrays[0]));
        ring_.lanes = data<Lane>(nb::object(arrays[1]));
        ring_.tallies = data<Tallies>(nb::object(arrays[2]));
        ring_.reach = nb::cast<int64_t>(anchors[0]);
        ring_.history = nb::cast<int64_t>(anchors[1]);
        ring_.starts = nb::cast<int64_t>(anchors[2]);
        ring_.across = nb::cast<bool>(anchors[3]);
        for (nb::handle layout : layouts) ring_.add_column(laid_out(nb::borrow<nb::tuple>(layout)));
        prepare_inputs(layouts);
    }

    ~PyRing() {
        for (auto& input : inputs_)
            for (PyObject* key : input.keys) Py_DECREF(key);
    }

    // Who is told at once of what `push` changes, and what is called with the tallies when that was a cut or a loss.
    void attach(nb::handle listener, nb::object notify) {
        keep_listener_ = nb::borrow(listener);
        listener_ = listener.is_none() ? nullptr : nb::cast<Listener*>(listener);
        notify_ = std::move(notify);
    }

    // The ids of one step of all lanes, straight from the caller's values; None where anything needs a closer look.
    nb::object push(nb::handle obs, nb::handle action, nb::handle reward, nb::handle next_obs, nb::handle terminated,
                    nb::handle truncated, nb::handle extras) {
        if (!listener_ || PyDict_GET_SIZE(extras.ptr()) != extras_) return nb::none();
        PyObject* roots[] = {obs.ptr(),        action.ptr(),    reward.ptr(),  extras.ptr(),
                             terminated.ptr(), truncated.ptr(), next_obs.ptr()};
        const bool has_next = !next_obs.is_none();
        const npy_intp n = npy_intp(ring_.num_lanes);
        const size_t count = has_next ? inputs_.size() : first_next_;
        for (size_t i = 0; i < count; ++i) {
            Input& input = inputs_[i];
            if (!input.take(input.find(roots), n)) return nb::none();
            pointers_[i] = input.pointer;
        }
        const Steps steps{pointers_.data(),
                          has_next ? pointers_.data() + first_next_ : nullptr,
                          reinterpret_cast<const uint8_t*>(pointers_[flags_]),
                          reinterpret_cast<const uint8_t*>(pointers_[flags_ + 1]),
                          nullptr,
                          n,
                          1};
        const Tallies before = *ring_.tallies;
        Out<std::int64_t> ids(n);
        news_.clear();
        run(n, [&] { ring_.write(steps, ids.data, news_); });
        listener_->change(news_.removed.data(), std::int64_t(news_.removed.size()), news_.added.data(),
                          std::int64_t(news_.added.size()));
        if (notices(before)) notify_(ring_.tallies->added, ring_.tallies->cuts, ring_.tallies->unbootstrapped);
        return ids.array;
    }

    nb::object write(nb::list values, nb::handle nexts, nb::handle terminated, nb::handle truncated, nb::handle lanes) {
        std::vector<const char*> from, to;
        for (nb::handle value : values) from.push_back(data<char>(value));
        if (!nexts.is_none())
            for (nb::handle value : nb::cast<nb::list>(nexts)) to.push_back(data<char>(value));
        const npy_intp* shape = PyArray_DIMS(array(terminated));
        Steps steps{from.data(),
                    nexts.is_none() ? nullptr : to.data(),
                    data<uint8_t>(terminated),
                    data<uint8_t>(truncated),
                    data<int64_t>(lanes),
                    shape[0],
                    shape[1]};
        return written(steps, fresh(NPY_INT64, {shape[0], shape[1]}));
    }

    nb::object cut(nb::handle lanes) {
        const Tallies before = *ring_.tallies;
        news_.clear();
        ring_.cut(data<int64_t>(lanes), PyArray_SIZE(array(lanes)), news_);
        return nb::make_tuple(fresh(news_.added), fresh(news_.removed), notices(before));
    }

    nb::object ids(nb::handle places) const {
        const npy_intp n = PyArray_SIZE(array(places));
        nb::object ids = fresh(NPY_INT64, {n});
        const auto* from = data<int64_t>(places);
        auto* to = data<int64_t>(ids);
        run(n, [&] {
            for (npy_intp i = 0; i < n; ++i) to[i] = ring_.id_at(from[i]);
        });
        return ids;
    }

    nb::object locate(nb::handle ids) const {
        const npy_intp n = PyArray_SIZE(array(ids));
        nb::object places = fresh(NPY_INT64, {n}), codes = fresh(NPY_UINT8, {n});
        const auto* from = data<int64_t>(ids);
        auto* to = data<int64_t>(places);
        auto* code = data<uint8_t>(codes);
        uint8_t any = 0;
        run(n, [&] {
            for (npy_intp i = 0; i < n; ++i) {
                if (i + DEEP < n && from[i + DEEP] >= 0) ring_.prefetch_mark_of(from[i + DEEP]);
                any |= code[i] = ring_.locate(from[i], to[i]);
            }
        });
        return nb::make_tuple(places, any ? codes : nb::none());
    }

    nb::object begin_since(nb::handle places, int64_t rows) const {
        const npy_intp n = PyArray_SIZE(array(places));
        nb::object begins = fresh(NPY_BOOL, {n});
        for (npy_intp i = 0; i < n; ++i) data<uint8_t>(begins)[i] = ring_.begins_since(data<int64_t>(places)[i], rows);
        return begins;
    }

    nb::object windows(nb::handle places, nb::handle discounts) const;

    nb::object sequences(nb::handle places, int64_t length, nb::handle discounts) const;

    nb::object stacks(nb::handle newest, int64_t frames, bool repeat) const {
        std::vector<npy_intp> shape(PyArray_DIMS(array(newest)),
                                    PyArray_DIMS(array(newest)) + PyArray_NDIM(array(newest)));
        shape.push_back(frames);
        nb::object rows = fresh(NPY_INT64, shape);
        const npy_intp n = PyArray_SIZE(array(newest));
        const auto* from = data<int64_t>(newest);
        auto* to = data<int64_t>(rows);
        run(n * frames, [&] {
            for (npy_intp i = 0; i < n; ++i) ring_.stack(from[i], frames, repeat, to + i * frames);
        });
        return rows;
    }

    nb::object fold(nb::handle column, nb::handle starts, nb::handle steps, nb::handle gammas) const {
        const npy_intp n = PyArray_SIZE(array(starts));
        std::vector<npy_intp> shape(PyArray_DIMS(array(column)),
                                    PyArray_DIMS(array(column)) + PyArray_NDIM(array(column)));
        shape[0] = n;
        nb::object out = fresh(PyArray_TYPE(array(column)), shape);
        if (PyArray_TYPE(array(column)) == NPY_FLOAT)
            fold_as<float>(column, starts, steps, gammas, out, n);
        else
            fold_as<double>(column, starts, steps, gammas, out, n);
        return out;
    }

    const Ring& ring() const { return ring_; }

private:
    Ring ring_;
    News news_;
    nb::object keep_, keep_listener_, notify_;
    Listener* listener_ = nullptr;
    std::vector<Input> inputs_;  // columns, terminated, truncated, then the observation's columns again for next_obs
    std::vector<const char*> pointers_;
    size_t flags_ = 0, first_next_ = 0;
    Py_ssize_t extras_ = 0;

    // (array, keys, shape of a value, frames, padding, interval, whether a value can be taken as it is)
    Column laid_out(const nb::tuple& layout) const {
        nb::object array_of = layout[0];
        Column column = column_of(array_of);
        column.frames = nb::cast<int64_t>(layout[3]);
        column.repeat = nb::cast<std::string>(layout[4]) == "first";
        column.every = nb::cast<int64_t>(layout[5]);
        if (column.every) column.slots = PyArray_DIM(array(array_of), 0) / ring_.num_lanes;
        return column;
    }

    void prepare_inputs(nb::list layouts) {
        std::vector<std::vector<std::string>> paths;
        for (nb::handle layout : layouts) {
            paths.emplace_back();
            for (nb::handle key : nb::tuple(layout[1])) paths.back().push_back(nb::cast<std::string>(key));
        }
        for (size_t c = 0; c < paths.size(); ++c) {
            const std::string& name = paths[c][0];
            const Root root = name == "obs" ? OBS : name == "action" ? ACTION : name == "reward" ? REWARD : EXTRAS;
            inputs_.push_back(input_of(layouts[c], c, paths, root));
        }
        flags_ = inputs_.size();
        for (const Root root : {TERMINATED_FLAG, TRUNCATED_FLAG}) {
            Input input;
            input.root = root;
            input.type = NPY_BOOL;
            input.row = 1;
            inputs_.push_back(std::move(input));
        }
        first_next_ = inputs_.size();
        for (size_t c = 0; c < ring_.num_obs; ++c) inputs_.push_back(input_of(layouts[c], c, paths, NEXT_OBS));
        pointers_.resize(inputs_.size());
        extras_ = children(paths, {}) - 3;  // besides obs, action and reward
    }

    static Py_ssize_t children(const std::vector<std::vector<std::string>>& paths,
                               const std::vector<std::string>& prefix) {
        std::vector<std::string> names;
        for (const auto& path : paths)
            if (path.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin())) {
                const std::string& name = path[prefix.size()];
                if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
            }
        return Py_ssize_t(names.size());
    }

    Input input_of(nb::handle layout, size_t c, const std::vector<std::vector<std::string>>& paths, Root root) const {
        const std::vector<std::string>& path = paths[c];
        Input input;
        input.root = root;
        for (size_t depth = root == EXTRAS ? 0 : 1; depth < path.size(); ++depth) {
            input.keys.push_back(PyUnicode_InternFromString(path[depth].c_str()));
            input.sizes.push_back(children(paths, {path.begin(), path.begin() + long(depth)}));
        }
        if (root == EXTRAS) input.sizes[0] -= 3;
        for (nb::handle axis : nb::tuple(layout[2])) input.shape.push_back(nb::cast<npy_intp>(axis));
        const bool ready = nb::cast<bool>(layout[6]);
        input.type = ready ? PyArray_TYPE(array(nb::object(layout[0]))) : NPY_NOTYPE;
        input.row = ring_.columns[c].given();
        return input;
    }

    int64_t notices(const Tallies& before) const {
        return ring_.tallies->cuts - before.cuts + ring_.tallies->unbootstrapped - before.unbootstrapped;
    }

    nb::object written(const Steps& steps, nb::object ids) {
        const Tallies before = *ring_.tallies;
        news_.clear();
        run(steps.n * steps.length, [&] { ring_.write(steps, data<int64_t>(ids), news_); });
        PyObject* notice = PyLong_FromLongLong(notices(before));
        PyObject* result = PyTuple_Pack(4, ids.ptr(), fresh(news_.added).ptr(), fresh(news_.removed).ptr(), notice);
        Py_XDECREF(notice);
        if (!result) nb::raise_python_error();
        return nb::steal(result);
    }

    template <typename T>
    void fold_as(nb::handle object, nb::handle starts, nb::handle steps, nb::handle gammas, nb::handle out,
                 npy_intp n) const {
        const Column column = column_of(object);
        const auto* start = data<int64_t>(starts);
        const auto* length = data<int32_t>(steps);
        const auto* gamma = data<double>(gammas);
        auto* to = data<T>(out);
        const size_t width = column.row / sizeof(T);
        const npy_intp rows_ahead = std::min<npy_intp>(PyArray_SIZE(array(gammas)) - 1, 4);
        const auto value = [&](int64_t row, size_t w) {
            return double(reinterpret_cast<const T*>(column.data + size_t(row) * column.stride)[w]);
        };
        run(n, [&] {
            for (npy_intp i = 0; i < n; ++i) {
                if (i + DEEP < n)
                    for (npy_intp k = 0; k < rows_ahead; ++k)
                        RELIVE_PREFETCH(column.data + size_t(start[i + DEEP] + k) * column.stride);
                // Only a window of more than one row can wrap, and only then is the lane's first row of interest.
                const int64_t first = length[i] > 1 ? start[i] - start[i] % ring_.rows : start[i];
                for (size_t w = 0; w < width; ++w) {
                    double total = value(start[i], w);
                    int64_t row = start[i];
                    for (int32_t k = 1; k < length[i]; ++k) {
                        if (++row == first + ring_.rows) row = first;
                        total += gamma[k] * value(row, w);
                    }
                    to[size_t(i) * width + w] = T(total);
                }
            }
        });
    }
};

}  // namespace relive
