// Objects that Python calls without a frame.
#include "callable.hpp"

// Behind Python.h, which it does not include.
#include <structmember.h>

namespace relive {
namespace {

struct Callable {
    PyObject_HEAD vectorcallfunc vectorcall;
    Call* call;
    PyObject* attributes;
};

Callable& callable_of(PyObject* self) { return *reinterpret_cast<Callable*>(self); }

PyObject* call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
    return guarded([&] { return (*callable_of(self).call)(arguments, PyVectorcall_NARGS(flags), names); });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(callable_of(self).attributes);
    return callable_of(self).call ? callable_of(self).call->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
    Py_CLEAR(callable_of(self).attributes);
    return 0;
}

void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(callable_of(self).attributes);
    delete callable_of(self).call;
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Callable, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot callable_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec callable_spec = {"relive._ring._native.Call", sizeof(Callable), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, callable_slots};

PyTypeObject* callable_type = nullptr;

}  // namespace

nb::object callable(std::unique_ptr<Call> call_of) {
    nb::object made = nb::steal(PyType_GenericAlloc(callable_type, 0));
    if (!made.is_valid()) nb::raise_python_error();
    callable_of(made.ptr()).vectorcall = call;
    callable_of(made.ptr()).call = call_of.release();
    return made;
}

}  // namespace relive

void bind_callable(nanobind::module_& m) {
    using namespace relive;
    callable_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&callable_spec));
    if (!callable_type) nb::raise_python_error();
    m.attr("_call_types") = nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(callable_type)));
}
