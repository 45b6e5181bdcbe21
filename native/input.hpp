// Takes one step's values straight from the caller's arguments, where nothing needs a closer look; `_step_parser.py`
// looks closer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "numpy_api.hpp"
#include "ring.hpp"

namespace relive {

// The arguments of `add`, of which a column's value is one or lies inside one.
enum Root { OBS, ACTION, REWARD, EXTRAS, TERMINATED_FLAG, TRUNCATED_FLAG, NEXT_OBS, ROOTS };

// One column's value in the caller's mapping: where it stands there, and what it must look like to be taken as it is.
struct Input {
    Root root;
    std::vector<PyObject*> keys;    // the way to it inside nested mappings
    std::vector<Py_ssize_t> sizes;  // how many keys the mapping at each depth must have
    int type, stored_type;  // NOTYPE where Python has to look at each value
    std::vector<npy_intp> shape;
    size_t row;
    std::vector<char> staging;  // for values that need a cast
    const char* pointer = nullptr;

    // The value among the arguments; null where a mapping is not exactly what the schema says.
    PyObject* find(PyObject* const* roots) const {
        PyObject* value = roots[root];
        for (size_t depth = 0; value && depth < keys.size(); ++depth) {
            if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) != sizes[depth]) return nullptr;
            value = PyDict_GetItem(value, keys[depth]);
        }
        return value;
    }

    bool take(PyObject* value, npy_intp lanes) {
        if (!value) return false;
        if (!PyArray_CheckExact(value)) return lanes == 1 && shape.empty() && take_scalar(value);
        auto* given = reinterpret_cast<PyArrayObject*>(value);
        if (!PyArray_IS_C_CONTIGUOUS(given) || !PyArray_ISNOTSWAPPED(given) || !PyArray_ISALIGNED(given)) return false;
        const npy_intp* sizes_given = PyArray_DIMS(given);
        const size_t axes = size_t(PyArray_NDIM(given));
        if (axes == shape.size() + 1) {
            if (*sizes_given++ != lanes) return false;
        } else if (axes != shape.size() || lanes != 1) {
            return false;
        }
        for (size_t i = 0; i < shape.size(); ++i)
            if (sizes_given[i] != shape[i]) return false;
        if (PyArray_TYPE(given) == type) {
            pointer = static_cast<const char*>(PyArray_DATA(given));
            return true;
        }
        return type == NPY_FLOAT && PyArray_TYPE(given) == NPY_DOUBLE &&
               narrow(static_cast<const double*>(PyArray_DATA(given)), size_t(lanes) * row / sizeof(float));
    }

private:
    bool narrow(const double* from, size_t n) {  // Gymnasium's vector environments give float64 rewards
        staging.resize(n * sizeof(float));
        auto* to = reinterpret_cast<float*>(staging.data());
        bool fits = true;
        for (size_t i = 0; i < n; ++i) {
            to[i] = float(from[i]);
            fits &= !std::isinf(to[i]) || std::isinf(from[i]);
        }
        pointer = staging.data();
        return fits;
    }

    template <typename T>
    bool put(T value) {
        staging.resize(sizeof(T));
        std::memcpy(staging.data(), &value, sizeof(T));
        pointer = staging.data();
        return true;
    }

    template <typename T>
    bool put_integer(long long value) {
        if (value < 0 && !std::numeric_limits<T>::is_signed) return false;
        if (static_cast<long long>(static_cast<T>(value)) != value) return false;
        return put(static_cast<T>(value));
    }

    bool take_scalar(PyObject* value) {
        if (type == NPY_BOOL) {
            if (value == Py_True || value == Py_False) return put(npy_bool(value == Py_True));
            if (PyArray_IsScalar(value, Bool)) return put(npy_bool(PyArrayScalar_VAL(value, Bool) != 0));
            return false;
        }
        if (type == NPY_FLOAT || type == NPY_DOUBLE) {
            double number;
            if (PyFloat_Check(value))  // np.float64 is a float, too
                number = PyFloat_AS_DOUBLE(value);
            else if (PyArray_IsScalar(value, Float))
                number = PyArrayScalar_VAL(value, Float);
            else
                return false;
            if (type == NPY_DOUBLE) return put(number);
            const float narrowed = float(number);
            return (!std::isinf(narrowed) || std::isinf(number)) && put(narrowed);
        }
        long long integer;
        if (PyArray_IsScalar(value, Long)) {
            integer = PyArrayScalar_VAL(value, Long);
        } else if (PyLong_CheckExact(value)) {
            int overflow = 0;
            integer = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow) return false;
        } else {
            return false;
        }
        switch (type) {
            case NPY_INT8:
                return put_integer<int8_t>(integer);
            case NPY_UINT8:
                return put_integer<uint8_t>(integer);
            case NPY_INT16:
                return put_integer<int16_t>(integer);
            case NPY_UINT16:
                return put_integer<uint16_t>(integer);
            case NPY_INT32:
                return put_integer<int32_t>(integer);
            case NPY_UINT32:
                return put_integer<uint32_t>(integer);
            case NPY_INT64:
                return put_integer<int64_t>(integer);
            default:
                return false;
        }
    }
};

// All of a call's arguments.
class Inputs {
public:
    Inputs() = default;
    Inputs(const Inputs&) = delete;
    Inputs& operator=(const Inputs&) = delete;
    ~Inputs() {
        for (auto& input : inputs_)
            for (PyObject* key : input.keys) Py_DECREF(key);
    }

    // `layouts` say for every column: array, keys, shape of a value, frames, and whether it can be taken as it is.
    void prepare(nb::list layouts, size_t num_obs) {
        std::vector<std::vector<std::string>> paths;
        for (nb::handle layout : layouts) {
            paths.emplace_back();
            for (nb::handle key : layout.attr("keys")) paths.back().push_back(nb::cast<std::string>(key));
        }
        columns_ = paths.size();
        for (size_t c = 0; c < columns_; ++c) {
            const std::string& name = paths[c][0];
            const Root root = name == "obs" ? OBS : name == "action" ? ACTION : name == "reward" ? REWARD : EXTRAS;
            inputs_.push_back(input_of(layouts[c], c, paths, root));
        }
        for (const Root root : {TERMINATED_FLAG, TRUNCATED_FLAG}) {
            Input input;
            input.root = root;
            input.type = input.stored_type = NPY_BOOL;
            input.row = 1;
            inputs_.push_back(std::move(input));
        }
        for (size_t c = 0; c < num_obs; ++c) inputs_.push_back(input_of(layouts[c], c, paths, NEXT_OBS));
        pointers_.resize(inputs_.size());
        extras_ = children(paths, {}) - 3;  // besides obs, action and reward
    }

    int type_of(size_t column) const { return inputs_[column].stored_type; }

    // Whether all of them can be taken as they are.
    bool take(PyObject* const* roots, PyObject* env_ids, PyObject* priority, int64_t lanes, bool takes_priority) {
        if (PyDict_GET_SIZE(roots[EXTRAS]) != extras_) return false;
        if (!take_lanes(env_ids, lanes) || !take_priority(priority, takes_priority)) return false;
        has_next_ = roots[NEXT_OBS] != Py_None;
        const size_t count = has_next_ ? inputs_.size() : columns_ + 2;
        for (size_t i = 0; i < count; ++i) {
            Input& input = inputs_[i];
            if (!input.take(input.find(roots), npy_intp(n_))) return false;
            pointers_[i] = input.pointer;
        }
        return true;
    }

    // What was taken last.
    Steps steps() const {
        return {pointers_.data(),
                has_next_ ? pointers_.data() + columns_ + 2 : nullptr,
                reinterpret_cast<const uint8_t*>(pointers_[columns_]),
                reinterpret_cast<const uint8_t*>(pointers_[columns_ + 1]),
                priorities_.empty() ? nullptr : priorities_.data(),
                numbers_.empty() ? nullptr : numbers_.data(),
                n_,
                1};
    }

private:
    std::vector<Input> inputs_;  // columns, terminated, truncated, then the observation's columns again for next_obs
    std::vector<const char*> pointers_;
    std::vector<int64_t> numbers_, called_;
    std::vector<double> priorities_;
    size_t columns_ = 0;
    Py_ssize_t extras_ = 0;
    int64_t n_ = 0, calls_ = 0;
    bool has_next_ = false;

    // Distinct lanes in an array or a list; None: all of them.
    bool take_lanes(PyObject* given, int64_t lanes) {
        numbers_.clear();
        n_ = lanes;
        if (given == Py_None) return true;
        if (is_array<int64_t, 1>(given)) {
            const auto* from = static_cast<const int64_t*>(PyArray_DATA(array(given)));
            numbers_.assign(from, from + PyArray_SIZE(array(given)));
        } else if (PyList_CheckExact(given)) {
            for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); ++i) {
                PyObject* number = PyList_GET_ITEM(given, i);
                if (!PyLong_CheckExact(number)) return false;
                int overflow = 0;
                numbers_.push_back(PyLong_AsLongLongAndOverflow(number, &overflow));
                if (overflow) return false;
            }
        } else {
            return false;
        }
        n_ = int64_t(numbers_.size());
        called_.resize(size_t(lanes));
        ++calls_;
        for (const int64_t number : numbers_) {
            if (number < 0 || number >= lanes || called_[size_t(number)] == calls_) return false;
            called_[size_t(number)] = calls_;
        }
        return n_ > 0;
    }

    // Finite priorities, none of them negative: a float for all lanes, or an array with one each; None: none.
    bool take_priority(PyObject* given, bool takes_priority) {
        priorities_.clear();
        if (given == Py_None) return true;
        if (!takes_priority) return false;
        if (PyFloat_Check(given)) {
            priorities_.assign(size_t(n_), PyFloat_AS_DOUBLE(given));
        } else if (is_array<double, 1>(given) && PyArray_SIZE(array(given)) == n_) {
            const auto* from = static_cast<const double*>(PyArray_DATA(array(given)));
            priorities_.assign(from, from + n_);
        } else {
            return false;
        }
        bool good = true;
        for (const double priority : priorities_) good &= priority >= 0 && std::isfinite(priority);
        return good;
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

    static Input input_of(nb::handle layout, size_t c, const std::vector<std::vector<std::string>>& paths, Root root) {
        const std::vector<std::string>& path = paths[c];
        const nb::object column = layout.attr("array");
        Input input;
        input.root = root;
        for (size_t depth = root == EXTRAS ? 0 : 1; depth < path.size(); ++depth) {
            input.keys.push_back(PyUnicode_InternFromString(path[depth].c_str()));
            input.sizes.push_back(children(paths, {path.begin(), path.begin() + long(depth)}));
        }
        if (root == EXTRAS) input.sizes[0] -= 3;
        input.row = size_t(PyArray_ITEMSIZE(array(column)));
        for (nb::handle axis : layout.attr("shape")) {
            input.shape.push_back(nb::cast<npy_intp>(axis));
            input.row *= size_t(input.shape.back());
        }
        input.stored_type = PyArray_TYPE(array(column));
        input.type = nb::cast<bool>(layout.attr("whole")) ? input.stored_type : NPY_NOTYPE;
        return input;
    }
};

}  // namespace relive
