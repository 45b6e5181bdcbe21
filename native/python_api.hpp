// What a build for one version of Python does by looking into objects. A build of the limited API, which serves all
// versions from 3.12 on, calls functions for it.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace relive {

namespace nb = nanobind;

#if defined(Py_LIMITED_API)

inline double float_of(PyObject* number) { return PyFloat_AsDouble(number); }
inline PyObject* tuple_item(PyObject* tuple, Py_ssize_t i) { return PyTuple_GetItem(tuple, i); }

#else

inline double float_of(PyObject* number) { return PyFloat_AS_DOUBLE(number); }
inline PyObject* tuple_item(PyObject* tuple, Py_ssize_t i) { return PyTuple_GET_ITEM(tuple, i); }

#endif

inline PyTypeObject* as_type(nb::handle type) { return reinterpret_cast<PyTypeObject*>(type.ptr()); }

// Put a new reference in the place of another one.
inline void replace(PyObject*& held, PyObject* made) { Py_DECREF(std::exchange(held, made)); }

}  // namespace relive
