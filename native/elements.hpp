// What a caller's lists, tuples and dicts hold. Where no interpreter's lock keeps other threads from changing them
// meanwhile, each element that is looked at is a reference of one's own.
#pragma once

#include "python_api.hpp"

namespace relive {

#if defined(Py_GIL_DISABLED)

using Element = nb::object;

inline Element kept(PyObject* object) { return nb::borrow(object); }

// The elements of a list or a tuple; one that is not there any more is invalid.
class Elements {
public:
    explicit Elements(PyObject* of) : of_(of) {}
    Element operator[](Py_ssize_t i) const {
        if (PyTuple_Check(of_)) return nb::borrow(tuple_item(of_, i));
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

#if defined(Py_LIMITED_API)

class Elements {
public:
    explicit Elements(PyObject* of) : of_(of), item_(PyTuple_Check(of) ? PyTuple_GetItem : PyList_GetItem) {}
    Element operator[](Py_ssize_t i) const { return item_(of_, i); }

private:
    PyObject* of_;
    PyObject* (*item_)(PyObject*, Py_ssize_t);
};

#else

class Elements {
public:
    explicit Elements(PyObject* of) : items_(PySequence_Fast_ITEMS(of)) {}
    Element operator[](Py_ssize_t i) const { return items_[i]; }

private:
    PyObject** items_;
};

#endif

inline PyObject* element_of(PyObject* dict, PyObject* key) { return Py_XNewRef(PyDict_GetItemWithError(dict, key)); }

#endif

}  // namespace relive
