// What a caller's lists, tuples and dicts hold. Where no interpreter's lock keeps other threads from changing them
// meanwhile, each element that is looked at is a reference of one's own.
#pragma once

#include <nanobind/nanobind.h>

namespace relive {

namespace nb = nanobind;

#if defined(Py_GIL_DISABLED)

using Element = nb::object;

inline Element kept(PyObject* object) { return nb::borrow(object); }

// The elements of a list or a tuple; one that is not there any more is invalid.
class Elements {
public:
    explicit Elements(PyObject* of) : of_(of) {}
    Element operator[](Py_ssize_t i) const {
        if (PyTuple_Check(of_)) return nb::borrow(PyTuple_GET_ITEM(of_, i));
        Element found = nb::steal(PyList_GetItemRef(of_, i));
        if (!found.is_valid()) PyErr_Clear();
        return found;
    }

private:
    PyObject* of_;
};

// A new reference to what a dict has under a key; null, with or without an exception, where it has nothing.
inline PyObject* element_of(PyObject* dict, PyObject* key) {
    PyObject* found = nullptr;
    PyDict_GetItemRef(dict, key, &found);
    return found;
}

#else

using Element = nb::handle;

inline Element kept(PyObject* object) { return object; }

class Elements {
public:
    explicit Elements(PyObject* of) : items_(PySequence_Fast_ITEMS(of)) {}
    Element operator[](Py_ssize_t i) const { return items_[i]; }

private:
    PyObject** items_;
};

inline PyObject* element_of(PyObject* dict, PyObject* key) { return Py_XNewRef(PyDict_GetItemWithError(dict, key)); }

#endif

}  // namespace relive
