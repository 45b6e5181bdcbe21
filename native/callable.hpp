// Objects that Python calls without a frame of its own.
#pragma once

#include <memory>

#include "numpy_api.hpp"

namespace relive {

// What such an object does.
class Call {
public:
    virtual ~Call() = default;

    // The result, or null with an exception. C++ exceptions may leave it. Behind the `given` positional arguments stand
    // those by keyword, which `names`, a tuple or null, has the names of.
    virtual PyObject* operator()(PyObject* const* arguments, Py_ssize_t given, PyObject* names) = 0;

    // Tell the garbage collector of all references.
    virtual int traverse(visitproc visit, void* arg) const = 0;
};

// Clear an error of looking at a value: the Python code raises it again. An interrupt stays.
inline void forget_error() {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
}

// Run what may throw; null with an exception where it does.
template <typename Work>
inline PyObject* guarded(Work&& work) {
    try {
        return work();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

// An object that does it. It has a `__dict__`, so that it can carry a method's name and docstring.
nb::object callable(std::unique_ptr<Call> call);

}  // namespace relive
