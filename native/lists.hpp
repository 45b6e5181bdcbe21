// Python numbers in nested lists and tuples, and what NumPy hides behind masks in them.
#pragma once

#include <bit>
#include <vector>

#include "elements.hpp"
#include "numbers.hpp"
#include "numpy_api.hpp"
#include "strided.hpp"

namespace relive {

inline bool is_list(nb::handle object) {
    return object.is_valid() && (PyList_CheckExact(object.ptr()) || PyTuple_CheckExact(object.ptr()));
}

// Whether an array of NumPy's masked kind has a mask; Python finds out whether it hides anything.
inline bool masked(PyObject* given) {
    nb::object mask = nb::steal(PyObject_GetAttrString(given, "_mask"));
    if (!mask) PyErr_Clear();
    return mask && mask.ptr() != PyArrayScalar_False;  // `numpy.ma.nomask`
}

// Whether one is in a list, or in lists of it.
inline bool holds_masked(PyObject* list, int depth) {
    const Elements items(list);
    for (Py_ssize_t i = 0, n = depth < MOST_AXES ? Py_SIZE(list) : 0; i < n; ++i) {
        const Element item = items[i];
        if (!item.is_valid() || PyArray_CheckExact(item.ptr())) continue;
        if (is_list(item) ? holds_masked(item.ptr(), depth + 1) : PyArray_Check(item.ptr()) && masked(item.ptr()))
            return true;
    }
    return false;
}

// All of them flags, integers or floats, as NumPy does it.
class ListedNumbers {
public:
    // Take the numbers of a list; sets its lengths and the number of its axes. False where these are not regular, or it
    // has anything else.
    bool flatten(PyObject* list, npy_intp* lengths, int& axes) {
        axes = 0;
        for (Element node = kept(list); is_list(node); node = Elements(node.ptr())[0]) {
            const Py_ssize_t n = Py_SIZE(node.ptr());
            if (!n || axes == MOST_AXES) return false;
            lengths[axes++] = n;
        }
        words_.clear();
        if (axes == 1) words_.reserve(size_t(lengths[0]));
        floats_ = false;
        flags_ = true;
        if (!fill(list, lengths, axes)) return false;
        if (flags_)
            for (size_t i = 0; i < words_.size(); ++i)
                reinterpret_cast<uint8_t*>(words_.data())[i] = uint8_t(words_[i]);
        return true;
    }

    const void* data() const { return words_.data(); }
    Number number() const { return flags_ ? Number::FLAG : floats_ ? Number::F64 : Number::I64; }
    void release(size_t large) {
        if (words_.size() >= large) std::vector<int64_t>().swap(words_);
    }

private:
    bool fill(PyObject* list, const npy_intp* lengths, int axes) {
        if (!is_list(list)) return false;
        const Py_ssize_t n = Py_SIZE(list);
        if (n != *lengths) return false;
        const Elements items(list);
        for (Py_ssize_t i = 0; i < n; ++i) {
            const Element item = items[i];
            if (!item.is_valid()) return false;
            if (axes > 1 ? !fill(item.ptr(), lengths + 1, axes - 1) : !append(item.ptr())) return false;
        }
        return true;
    }

    bool append(PyObject* number) {
        if (PyFloat_CheckExact(number)) {
            if (!floats_)
                for (int64_t& word : words_) word = std::bit_cast<int64_t>(double(word));
            floats_ = true;
            flags_ = false;
            words_.push_back(std::bit_cast<int64_t>(float_of(number)));
            return true;
        }
        if (!PyLong_Check(number) || !(PyBool_Check(number) || PyLong_CheckExact(number))) return false;
        int overflow = 0;
        const int64_t word = PyLong_AsLongLongAndOverflow(number, &overflow);
        flags_ &= PyBool_Check(number) != 0;
        words_.push_back(floats_ ? std::bit_cast<int64_t>(double(word)) : word);
        return !overflow;
    }

    bool floats_ = false, flags_ = false;
    std::vector<int64_t> words_;
};

}  // namespace relive
