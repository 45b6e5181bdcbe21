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

// Whether the process has no other Python thread, which could be in the middle of a call that let go of the
// interpreter.
inline bool only_thread() {
#if defined(Py_LIMITED_API) || defined(Py_GIL_DISABLED)
    return false;
#else
    return !PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get()));
#endif
}

inline PyTypeObject* as_type(nb::handle type) { return reinterpret_cast<PyTypeObject*>(type.ptr()); }

// Put a new reference in the place of another one.
inline void replace(PyObject*& held, PyObject* made) { Py_DECREF(std::exchange(held, made)); }

}  // namespace relive
