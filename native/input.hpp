// Takes one step's values straight from the caller's mapping, where nothing needs a closer look; `_ingest.py` looks
// closer.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "numpy_api.hpp"

namespace relive {

// The arguments of `add`, of which a column's value is one or lies inside one.
enum Root { OBS, ACTION, REWARD, EXTRAS, TERMINATED_FLAG, TRUNCATED_FLAG, NEXT_OBS };

// One column's value in the caller's mapping: where it stands there, and what it must look like to be taken as it is.
struct Input {
    Root root;
    std::vector<PyObject*> keys;    // the way to it inside nested mappings
    std::vector<Py_ssize_t> sizes;  // how many keys the mapping at each depth must have
    int type;
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

}  // namespace relive
