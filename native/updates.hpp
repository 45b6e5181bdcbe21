// New priorities as `update_priorities` is given them: ids of items, and a TD error for each.
#pragma once

#include "draw.hpp"
#include "values.hpp"

namespace relive {

// Take plain arrays as they are. False where they are anything else, subclasses included: these may hide values.
inline bool take_plain(nb::handle ids, nb::handle td_error, Updates& updates) {
    In<int64_t> which;
    if (!PyArray_CheckExact(ids.ptr()) || !PyArray_CheckExact(td_error.ptr()) || !which.take(ids)) return false;
    const bool wide = is_array<double, 0>(td_error), narrow = !wide && is_array<float, 0>(td_error);
    if (!wide && !narrow) return false;
    PyArrayObject* const given = array(td_error);
    const int axes = PyArray_NDIM(given);
    if (PyArray_SIZE(given) != which.size || axes < 1 || axes > 2 || PyArray_DIM(given, 0) != which.size) return false;
    const void* const errors = PyArray_DATA(given);
    updates = {which.data, wide ? static_cast<const double*>(errors) : nullptr,
               narrow ? static_cast<const float*>(errors) : nullptr, which.size};
    return true;
}

// Whatever else numbers may come in: lists, tensors, arrays of other types or strides.
class Converted {
public:
    ~Converted() {
        ids_.release();
        errors_.release();
    }

    // Keep hold of both. This may run Python code; false, with or without an exception, where Python has to look.
    bool acquire(nb::handle ids, nb::handle td_error) {
        if (ids_.acquire(Py_NewRef(ids.ptr())) != Value::YES) return false;
        PyObject* const errors = Tensors::known().detached(td_error.ptr());
        return errors && errors_.acquire(errors) == Value::YES;
    }

    // What was acquired, as it is now; it lives as long as this object. This runs no Python code.
    bool settle(Updates& updates) {
        ids_.look();
        errors_.look();
        const bool numbers = is_integer(errors_.given()) || errors_.given() >= Number::BF16;
        if (ids_.axes() != 1 || !is_integer(ids_.given()) || !numbers) return false;
        const Lead lead{{ids_.length(0), 1}};
        if (!ids_.settle(lead) || !errors_.settle(lead)) return false;
        updates = {reinterpret_cast<const int64_t*>(ids_.pointer()), reinterpret_cast<const double*>(errors_.pointer()),
                   nullptr, int64_t(ids_.length(0))};
        return true;
    }

private:
    Value ids_{Number::I64, sizeof(int64_t)};
    Value errors_{Number::F64, sizeof(double), {}, false, true};
};

}  // namespace relive
