// NumPy's C API for the binding files. Arrays are taken as they are and checked by casters of our own, which costs next
// to nothing; nanobind's own array cast costs more than a small kernel does. bind.cpp defines RELIVE_IMPORTS_NUMPY and
// imports the API for all.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL relive_numpy_api
#ifndef RELIVE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "interpreter.hpp"

namespace relive {

// Element types by what they are, for NumPy has two 64-bit integers on some systems.
template <typename T>
struct Kind;
#define RELIVE_KIND(T, LETTER, NUMBER, NAME)                       \
    template <>                                                    \
    struct Kind<T> {                                               \
        static constexpr char letter = LETTER;                     \
        static constexpr int number = NUMBER;                      \
        static constexpr auto name = nb::detail::const_name(NAME); \
    };
RELIVE_KIND(double, 'f', NPY_FLOAT64, "float64")
RELIVE_KIND(float, 'f', NPY_FLOAT32, "float32")
RELIVE_KIND(std::int64_t, 'i', NPY_INT64, "int64")
RELIVE_KIND(std::int32_t, 'i', NPY_INT32, "int32")
RELIVE_KIND(std::uint32_t, 'u', NPY_UINT32, "uint32")
RELIVE_KIND(std::uint8_t, 'u', NPY_UINT8, "uint8")
RELIVE_KIND(bool, 'b', NPY_BOOL, "bool")
#undef RELIVE_KIND

inline PyArrayObject* array(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

// Whether `object` is a C-contiguous, aligned array of T in this machine's byte order, of D axes (0: of any number).
template <typename T, int D>
inline bool is_array(nb::handle object) {
    if (!PyArray_Check(object.ptr())) return false;
    PyArrayObject* given = array(object);
    return PyArray_DESCR(given)->kind == Kind<T>::letter && PyArray_ITEMSIZE(given) == sizeof(T) &&
           PyArray_ISCARRAY_RO(given) && (D == 0 || PyArray_NDIM(given) == D);
}

// An array argument: where its elements are and how many. It is borrowed from the call's arguments.
template <typename T, int D = 1>
struct In {
    const T* data = nullptr;
    std::int64_t size = 0;
    const npy_intp* shape = nullptr;
    int axes = 0;

    bool take(nb::handle object) {
        if (!is_array<T, D>(object)) return false;
        PyArrayObject* given = array(object);
        data = static_cast<const T*>(PyArray_DATA(given));
        size = PyArray_SIZE(given);
        shape = PyArray_DIMS(given);
        axes = PyArray_NDIM(given);
        return true;
    }
};

// An array that is written to, and kept alive by `object`.
template <typename T, int D = 1>
struct InOut {
    T* data = nullptr;
    std::int64_t size = 0;
    const npy_intp* shape = nullptr;
    nb::handle object;

    bool take(nb::handle given) {
        if (!is_array<T, D>(given) || !PyArray_ISWRITEABLE(array(given))) return false;
        object = given;
        data = static_cast<T*>(PyArray_DATA(array(given)));
        size = PyArray_SIZE(array(given));
        shape = PyArray_DIMS(array(given));
        return true;
    }
};

// An element of a list, checked like an argument.
template <typename Argument>
Argument taken(nb::handle object, const char* what) {
    Argument argument;
    if (!argument.take(object)) throw nb::type_error(what);
    return argument;
}

// A new array for a result.
inline nb::object fresh(int type, const std::vector<npy_intp>& shape) {
    PyObject* made = PyArray_SimpleNew(int(shape.size()), shape.data(), type);
    if (!made) nb::raise_python_error();
    return nb::steal(made);
}

template <typename T>
struct Out {
    nb::object array;
    T* data;
    explicit Out(const std::vector<npy_intp>& shape)
        : array(fresh(Kind<T>::number, shape)), data(static_cast<T*>(PyArray_DATA(relive::array(array)))) {}
    explicit Out(std::int64_t size) {
        npy_intp shape[1] = {static_cast<npy_intp>(size)};
        array = nb::steal(PyArray_SimpleNew(1, shape, Kind<T>::number));
        if (!array.is_valid()) nb::raise_python_error();
        data = static_cast<T*>(PyArray_DATA(relive::array(array)));
    }
};

inline nb::object listed_of(const std::int64_t* values, std::int64_t n) {
    Out<std::int64_t> made(n);
    if (n) std::memcpy(made.data, values, size_t(n) * sizeof(std::int64_t));
    return made.array;
}
inline nb::object listed_of(const std::vector<std::int64_t>& values) {
    return listed_of(values.data(), std::int64_t(values.size()));
}

// Results with names: an instance of one of the named tuples in relive/_plans.py.
template <typename... Parts>
nb::object plan(PyTypeObject* type, const Parts&... parts) {
    PyObject* made = PyType_GenericAlloc(type, sizeof...(Parts));
    if (!made) nb::raise_python_error();
    Py_ssize_t i = 0;
    (PyTuple_SetItem(made, i++, nb::handle(parts).inc_ref().ptr()), ...);
    return nb::steal(made);
}

inline void require(bool good, const char* otherwise) {
    if (!good) throw nb::value_error(otherwise);
}

// Refuse indices outside [0, limit). The highest bit tells: of a negative index, and of what is left up to the last
// where an index lies above it. Without a way out in the middle, so that the compiler makes vectors of the loop.
inline void within(const std::int64_t* indices, std::int64_t n, std::int64_t limit, const char* what) {
    const auto last = std::uint64_t(limit - 1);
    std::uint64_t found = 0;
    for (std::int64_t i = 0; i < n; ++i) found |= std::uint64_t(indices[i]) | (last - std::uint64_t(indices[i]));
    if (found >> 63) throw nb::index_error(what);
}

// Below this many items a kernel is over sooner than another thread could make use of the interpreter.
constexpr std::int64_t WORTH_RELEASING = 1024;

// Runs a kernel, without the interpreter's lock if it has enough to do.
template <typename Kernel>
inline void run(std::int64_t items, Kernel&& kernel) {
    if (items < WORTH_RELEASING) return kernel();
    Away away;
    kernel();
}

}  // namespace relive

namespace nanobind::detail {

template <typename T, int D>
struct type_caster<relive::In<T, D>> {
    using Argument = relive::In<T, D>;
    NB_TYPE_CASTER(Argument, const_name("numpy.ndarray[") + relive::Kind<T>::name + const_name("]"))
    bool from_python(handle src, uint8_t, cleanup_list*) noexcept { return value.take(src); }
};

template <typename T, int D>
struct type_caster<relive::InOut<T, D>> {
    using Argument = relive::InOut<T, D>;
    NB_TYPE_CASTER(Argument, const_name("numpy.ndarray[") + relive::Kind<T>::name + const_name("]"))
    bool from_python(handle src, uint8_t, cleanup_list*) noexcept { return value.take(src); }
};

}  // namespace nanobind::detail
