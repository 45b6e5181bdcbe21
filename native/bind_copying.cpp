// Copies of what an environment is given and returns, in memory of earlier ones that no one else holds any more.
#include "callable.hpp"

namespace relive {
namespace {

class Copying : public Call {
public:
    explicit Copying(int64_t lanes) : lanes_(lanes) {}

    PyObject* operator()(PyObject* const* arguments, Py_ssize_t given, PyObject* names) override {
        if (given != 1 || names) return PyErr_Format(PyExc_TypeError, "relive._ring._native.copying: one value");
        PyObject* value = lanes_ ? quiet(arguments[0]) : arguments[0];
        PyObject* made = value ? copy(value) : nullptr;
        return made || PyErr_Occurred() ? made : Py_NewRef(Py_None);
    }

    int traverse(visitproc visit, void* arg) const override {
        for (const nb::object& each : held_) Py_VISIT(each.ptr());
        return 0;
    }

private:
    int64_t lanes_;
    nb::object held_[2];  // a step has one while the next is made
    int newest_ = 0;

    // The observation, borrowed, of a step's result where no flag is set.
    PyObject* quiet(PyObject* result) const {
        if (!PyTuple_CheckExact(result) || PyTuple_Size(result) != 5) return nullptr;
        const bool none = none_set(tuple_item(result, 2)) && none_set(tuple_item(result, 3));
        return none ? tuple_item(result, 0) : nullptr;
    }

    bool none_set(PyObject* flags) const {
        if (lanes_ == 1 && (flags == Py_False || flags == PyArrayScalar_False)) return true;
        In<bool> given;
        if (!PyArray_CheckExact(flags) || !given.take(flags) || given.size != lanes_) return false;
        return !given.data[0] && !std::memcmp(given.data, given.data + 1, size_t(lanes_ - 1));
    }

    // A new reference; null, with or without an exception, where a copy takes more than bytes.
    PyObject* copy(PyObject* value) {
        if (PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value)) return Py_NewRef(value);
        if (!PyArray_CheckExact(value)) return nullptr;
        PyArrayObject* like = array(value);
        if (!PyArray_ISCARRAY_RO(like) || PyDataType_REFCHK(PyArray_DESCR(like))) return nullptr;
        nb::object& into = place(like);
        if (!into.is_valid()) return nullptr;
        std::memcpy(PyArray_DATA(array(into)), PyArray_DATA(like), size_t(PyArray_NBYTES(like)));
        return nb::object(into).release().ptr();
    }

    nb::object& place(PyArrayObject* like) {
#if !defined(Py_GIL_DISABLED)
        for (nb::object& each : held_)
            if (each.is_valid() && Py_REFCNT(each.ptr()) == 1 && PyArray_SAMESHAPE(array(each), like) &&
                PyArray_DESCR(array(each)) == PyArray_DESCR(like))
                return each;
#endif
        newest_ ^= 1;
        return held_[newest_] = nb::steal(PyArray_NewLikeArray(like, NPY_CORDER, nullptr, 0));
    }
};

}  // namespace
}  // namespace relive

void bind_copying(nanobind::module_& m) {
    using namespace relive;
    m.def(
        "copying",
        [](int64_t lanes) {
            require(lanes >= 0, "relive._ring._native.copying: fewer than no lanes");
            return callable(std::make_unique<Copying>(lanes));
        },
        nb::arg("lanes"));
}
