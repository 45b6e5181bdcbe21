// NumPy's C API for the binding files: arrays are taken as they are, which costs next to nothing; nanobind's own
// array cast costs more than a small kernel does. bind.cpp defines RELIVE_IMPORTS_NUMPY and imports the API for all.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL relive_numpy_api
#ifndef RELIVE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif

#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <cstdint>
#include <string>

namespace relive {

namespace nb = nanobind;

// Element types by what they are, for NumPy has two 64-bit integers on some systems.
template <typename T>
struct Kind;
template <>
struct Kind<double> {
    static constexpr char letter = 'f';
    static constexpr int number = NPY_FLOAT64;
};
template <>
struct Kind<float> {
    static constexpr char letter = 'f';
    static constexpr int number = NPY_FLOAT32;
};
template <>
struct Kind<std::int64_t> {
    static constexpr char letter = 'i';
    static constexpr int number = NPY_INT64;
};
template <>
struct Kind<std::int32_t> {
    static constexpr char letter = 'i';
    static constexpr int number = NPY_INT32;
};

// Whether `object` is a C-contiguous, aligned array of T in this machine's byte order.
template <typename T>
inline bool is_array(nb::handle object) {
    if (!PyArray_Check(object.ptr())) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
    return PyArray_DESCR(array)->kind == Kind<T>::letter && PyArray_ITEMSIZE(array) == sizeof(T) &&
           PyArray_ISCARRAY_RO(array);
}

// An array argument: where its elements are and how many.
template <typename T>
struct In {
    const T* data;
    std::int64_t size;
    explicit In(nb::handle object) {
        if (!is_array<T>(object)) throw nb::type_error("relive._native: an argument is not the array it has to be");
        auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
        data = static_cast<const T*>(PyArray_DATA(array));
        size = PyArray_SIZE(array);
    }
};

// An array to be written to.
template <typename T>
inline T* writable(nb::handle object) {
    if (!is_array<T>(object) || !PyArray_ISWRITEABLE(reinterpret_cast<PyArrayObject*>(object.ptr())))
        throw nb::type_error("relive._native: an argument is not the writable array it has to be");
    return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(object.ptr())));
}

// A new one-dimensional array for a result.
template <typename T>
struct Out {
    nb::object array;
    T* data;
    explicit Out(std::int64_t size) {
        npy_intp shape[1] = {static_cast<npy_intp>(size)};
        array = nb::steal(PyArray_SimpleNew(1, shape, Kind<T>::number));
        if (!array.is_valid()) nb::raise_python_error();
        data = static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
    }
};

// Below this many items a kernel is over sooner than another thread could make use of the interpreter.
constexpr std::int64_t WORTH_RELEASING = 1024;

// Runs a kernel, without the interpreter's lock if it has enough to do.
template <typename Kernel>
inline void run(std::int64_t items, Kernel&& kernel) {
    if (items < WORTH_RELEASING) return kernel();
    nb::gil_scoped_release released;
    kernel();
}

}  // namespace relive
