// One value among the arguments of `add` or `extend`: found to be of the right shape, and made the bytes of a column.
// `_schema/step_parser.py` states the same rules in readable form, and has the errors.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "lists.hpp"
#include "numbers.hpp"
#include "numpy_api.hpp"
#include "strided.hpp"
#include "tensors.hpp"

namespace relive {

// bfloat16 is no type of NumPy's own; ml_dtypes gives it this letter.
inline Number number_of(const PyArray_Descr* descr) {
    const auto size = size_t(PyDataType_ELSIZE(descr));
    if (descr->kind == 'V' && descr->type == 'E' && size == 2) return Number::BF16;
    return number_of(descr->kind, size);
}

// Memory for a call's bytes, which later calls find as it was left.
class Bytes {
public:
    char* of(size_t n) {
        if (n > size_) bytes_ = std::make_unique_for_overwrite<char[]>(size_ = n);
        return bytes_.get();
    }
    void release() {
        if (size_ > KEPT) bytes_.reset(), size_ = 0;
    }

private:
    static constexpr size_t KEPT = 1 << 20;  // one step's stacks of large images
    std::unique_ptr<char[]> bytes_;
    size_t size_ = 0;
};

// The leading axes of one call's data: lanes, or lanes and time.
struct Lead {
    npy_intp sizes[2] = {1, 1};
    int axes = 1;
    bool optional = false;  // the first of them is 1 and may be left out
    bool by_time = false;   // time comes first

    npy_intp count() const { return sizes[0] * sizes[1]; }
};

class Value {
public:
    enum Taken { YES, NO, ASK };  // ASK: it is of a type that Python has to look at

    Value(Number type, size_t size, std::vector<npy_intp> shape = {}, bool behind = false, bool column = false)
        : type_(type), shape_(std::move(shape)), behind_(behind), column_(column), size_(size) {
        for (const npy_intp length : shape_) elements_ *= length;
    }

    size_t row() const { return size_ * size_t(elements_); }
    const char* pointer() const { return pointer_; }

    // Keep hold of what was given, a reference of its own. This may run Python code.
    Taken acquire(PyObject* given) {
        held_ = given;
        array_ = nullptr;
        if (PyArray_CheckExact(given)) return take_array(given);
        if (take_number(given)) return known();
        if (PyArray_Check(given)) return masked(given) ? ASK : take_array(given);
        if (PyList_CheckExact(given) || PyTuple_CheckExact(given)) {
            if (listed_.flatten(given, own_lengths_, axes_)) {
                describe(listed_.data(), listed_.number(), axes_);
                return known();
            }
            if (holds_masked(given, 0)) return ASK;
        } else if (Tensors::known().is(given)) {
            return take_tensor();
        } else if (!PyObject_CheckBuffer(given)) {
            return ASK;
        }
        PyObject* made = PyArray_FromAny(given, nullptr, 0, 0, 0, nullptr);
        if (!made) return NO;
        replace(held_, made);
        return take_array(made);
    }

    // The array that Python made of it; a reference of its own.
    bool accept(PyObject* made, npy_intp count) {
        replace(held_, made);
        array_ = nullptr;
        ready_ = PyArray_Check(made) && PyArray_ISCARRAY_RO(array(made)) && type_ != Number::NONE &&
                 number(array(made)) == type_ && size_t(PyArray_NBYTES(array(made))) == size_t(count) * row();
        if (ready_) pointer_ = static_cast<const char*>(PyArray_DATA(array(made)));
        return ready_;
    }

    void release() {
        Py_CLEAR(held_);
        ready_ = false;
        gathered_.release();
        converted_.release();
        listed_.release(size_t(LARGE));
    }

    // What was acquired, as it is now: Python code that has run since may have changed an array.
    void look() {
        if (!array_) return;
        data_ = static_cast<const char*>(PyArray_DATA(array_));
        given_ = number(array_);
        axes_ = PyArray_NDIM(array_);
        lengths_ = PyArray_DIMS(array_);
        steps_ = PyArray_STRIDES(array_);
        plain_ = PyArray_IS_C_CONTIGUOUS(array_);
        direct_ = PyArray_ISNOTSWAPPED(array_) && PyArray_ISALIGNED(array_);
    }
    Number given() const { return given_; }
    int axes() const { return axes_; }
    npy_intp length(int axis) const { return lengths_[axis]; }
    int own_axes() const { return int(shape_.size()); }

    bool behind() const { return behind_; }
    // Whether it is the bytes of a column already, but for frames that lie behind.
    bool is_behind() {
        if (ready_) return false;
        look();
        return behind_ && plain_ && direct_ && given_ == type_;
    }
    bool as_given = false;  // leave them there

    // Make it the bytes of a column, leading axes as they are, frames before what they show; false where it is not
    // legal.
    bool settle(const Lead& lead) {
        if (ready_) return true;
        look();
        if (known() != YES) return false;
        for (int left_out = 0; left_out <= int(lead.optional); ++left_out)
            for (int more = 0; more <= int(column_); ++more)
                if (fits(lead, left_out, more)) return settle(lead, left_out);
        return false;
    }

private:
    static constexpr int64_t LARGE = 1 << 16;  // elements

    // What is wanted.
    Number type_;
    std::vector<npy_intp> shape_;
    bool behind_, column_;  // frames are the last axis; one more axis of 1 is taken
    size_t size_;           // of an element
    npy_intp elements_ = 1;
    // What was given: an array, or something described here.
    PyObject* held_ = nullptr;
    PyArrayObject* array_ = nullptr;
    const char* data_ = nullptr;
    Number given_ = Number::NONE;
    bool plain_ = true, direct_ = true;  // contiguous; numbers that the processor can read
    int axes_ = 0;
    const npy_intp *lengths_ = nullptr, *steps_ = nullptr;
    // What it became.
    const char* pointer_ = nullptr;
    bool ready_ = false;
    int64_t number_[2];
    Bytes gathered_, converted_;
    ListedNumbers listed_;
    npy_intp own_lengths_[MOST_AXES], own_steps_[MOST_AXES];

    static Number number(PyArrayObject* array) { return number_of(PyArray_DESCR(array)); }

    bool fits(const Lead& lead, int left_out, int more) const {
        if (axes_ != lead.axes - left_out + int(shape_.size()) + more) return false;
        const npy_intp* length = lengths_;
        for (int axis = left_out; axis < lead.axes; ++axis)
            if (*length++ != lead.sizes[axis]) return false;
        for (const npy_intp wanted : shape_)
            if (*length++ != wanted) return false;
        return !more || *length == 1;
    }

    bool settle(const Lead& lead, int left_out) {
        const int64_t n = lead.count() * elements_;
        if (plain_ && direct_ && (as_given || !behind_)) {
            if (given_ != type_) return convert(n);
            pointer_ = data_;
            return true;
        }
        Strided block(data_, size_of(given_));
        const auto add = [&](int axis) {
            if (axis >= left_out) block.add(lengths_[axis - left_out], steps_[axis - left_out]);
        };
        const int first = lead.axes, end = first + int(shape_.size());
        for (int axis = 0; axis < first; ++axis) add(axis);
        if (behind_) add(end - 1);
        for (int axis = first; axis < end - int(behind_); ++axis) add(axis);
        if (!block.contiguous() || !direct_) run_long(n, [&] { gather_all(block, n); });
        if (given_ != type_) return convert(n);
        pointer_ = data_;
        return true;
    }

    template <typename Job>
    static void run_long(int64_t n, Job job) {
        if (n < LARGE) return job();
        Away away;
        job();
    }

    void gather_all(const Strided& block, int64_t n) {
        char* const to = gathered_.of(size_t(n) * block.size);
        gather(block, to);
        const size_t part = is_complex(given_) ? block.size / 2 : block.size;
        if (array_ && !PyArray_ISNOTSWAPPED(array_)) swap_bytes(to, part, n * int64_t(block.size / part));
        data_ = to;
    }

    bool convert(int64_t n) {
        bool good = false;
        char* const to = converted_.of(size_t(n) * size_);
        run_long(n, [&] { good = relive::convert(data_, given_, to, type_, n); });
        pointer_ = to;
        return good;
    }

    Taken known() const {
        const bool copied = type_ == given_ || !(is_complex(type_) || is_complex(given_));
        return copied && type_ != Number::NONE && given_ != Number::NONE ? YES : ASK;
    }

    Taken take_array(PyObject* given) {
        array_ = reinterpret_cast<PyArrayObject*>(given);
        given_ = number(array_);
        return known();
    }

    void describe(const void* data, Number given, int axes) {
        data_ = static_cast<const char*>(data);
        given_ = given;
        axes_ = axes;
        lengths_ = own_lengths_;
        steps_ = own_steps_;
        plain_ = direct_ = true;
        npy_intp step = npy_intp(size_of(given));
        for (int axis = axes - 1; axis >= 0; --axis) {
            own_steps_[axis] = step;
            step *= own_lengths_[axis];
        }
    }

    // Python's and NumPy's numbers.
    bool take_number(PyObject* given) {
        Number found = Number::NONE;
        if (PyFloat_CheckExact(given)) {
            number_[0] = std::bit_cast<int64_t>(float_of(given));
            found = Number::F64;
        } else if (PyBool_Check(given)) {
            *reinterpret_cast<uint8_t*>(number_) = given == Py_True;
            found = Number::FLAG;
        } else if (PyLong_CheckExact(given)) {
            int overflow = 0;
            number_[0] = PyLong_AsLongLongAndOverflow(given, &overflow);
            if (overflow) return false;
            found = Number::I64;
        } else if (PyArray_IsScalar(given, Generic)) {
            PyArray_Descr* descr = PyArray_DescrFromScalar(given);
            if (!descr) return false;
            found = number_of(descr);
            Py_DECREF(descr);
            if (found == Number::BF16) {  // whose bytes are another library's
                PyObject* wide = PyNumber_Float(given);
                if (!wide) return PyErr_Clear(), false;
                number_[0] = std::bit_cast<int64_t>(float_of(wide));
                found = Number::F64;
                Py_DECREF(wide);
            } else if (found != Number::NONE) {
                PyArray_ScalarAsCtype(given, number_);
            }
        }
        if (found != Number::NONE) describe(number_, found, 0);
        return found != Number::NONE;
    }

    Taken take_tensor() {
        PyObject* capsule = Tensors::known().exported(held_);
        const DLTensor* tensor = capsule ? Tensors::look(capsule) : nullptr;
        if (!tensor || tensor->axes > MOST_AXES) {
            Py_XDECREF(capsule);
            return PyErr_Occurred() ? NO : ASK;
        }
        replace(held_, capsule);
        std::copy_n(tensor->lengths, tensor->axes, own_lengths_);
        describe(static_cast<const char*>(tensor->data) + tensor->offset, Tensors::number_of(*tensor), tensor->axes);
        npy_intp whole = npy_intp(size_of(given_));
        for (int axis = tensor->axes - 1; tensor->steps && axis >= 0; --axis) {
            own_steps_[axis] = npy_intp(tensor->steps[axis]) * npy_intp(size_of(given_));
            plain_ &= own_lengths_[axis] == 1 || own_steps_[axis] == whole;
            whole *= own_lengths_[axis];
        }
        direct_ = reinterpret_cast<uintptr_t>(data_) % std::max<size_t>(size_of(given_), 1) == 0;
        return known();
    }
};

}  // namespace relive
