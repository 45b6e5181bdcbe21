// `add` and `extend` as objects that are called without a Python frame; relive._buffer.adding has what they leave to
// Python.
#include "bind_ring.hpp"

// Behind Python.h, which it does not include.
#include <structmember.h>

namespace relive {
namespace {

struct Add {
    PyObject_HEAD vectorcallfunc call;
    PyObject *ring_object, *lock_object, *coerce, *refresh, *fallback, *attributes;
    PyRing* ring;
    Lock* lock;
    Py_ssize_t asked;  // calls of which Python had to look at a value
    char several;      // `extend`
};

nb::object shaped(nb::object ids, const Inputs& inputs) {
    if (!inputs.lead().swapped) return ids;
    return nb::steal(PyArray_Transpose(array(ids), nullptr));
}

// The ids of the steps; null, without an exception, where the call is left to Python.
nb::object attempt(Add& add, PyObject* const* arguments, PyObject* names) {
    PyRing& owner = *add.ring;
    Inputs& inputs = owner.inputs;
    const Ring& ring = owner.ring;
    if (owner.pending() || !inputs.acquire(arguments, names, add.several, ring.lanes, add.coerce)) return {};
    if (inputs.gives_priority()) {
        if (!ring.given || add.refresh == Py_None) return {};
        // Earlier steps without a priority get the largest so far, which these steps may raise.
        nb::handle(add.refresh)();
    }
    if (!inputs.settle()) return {};
    const Steps steps = inputs.steps();
    if (ring.watched & UNBOOTSTRAPPED && steps.loses_a_final()) return {};
    if (owner.reaches_limit(steps)) return {};
    const bool one_axis = !add.several || inputs.flat();
    const npy_intp count = npy_intp(steps.n * steps.length);
    Out<std::int64_t> ids =
        one_axis ? Out<std::int64_t>(count) : Out<std::int64_t>(std::vector<npy_intp>{npy_intp(steps.n), steps.length});
    nb::object result = shaped(ids.array, inputs);
    if (!result.is_valid()) nb::raise_python_error();
    owner.put(steps, ids.data);
    add.asked += inputs.asked();
    owner.notice();
    return result;
}

// Clear an error of looking at a value: the Python code raises it again. An interrupt stays.
void forget_error() {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
}

PyObject* call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
    Add& add = *reinterpret_cast<Add*>(self);
    if (const Py_ssize_t given = PyVectorcall_NARGS(flags))
        return PyErr_Format(PyExc_TypeError, "ReplayBuffer.%s() takes 1 positional argument but %zd were given",
                            add.several ? "extend" : "add", given + 1);
    if (add.lock->taken()) return PyObject_Vectorcall(add.fallback, arguments, 0, names);  // which refuses it
    if (!add.lock->enter()) return nullptr;
    nb::object result;
    try {
        result = attempt(add, arguments, names);
        if (!result.is_valid()) forget_error();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    const bool raised = PyErr_Occurred();
    add.ring->inputs.release();
    add.lock->leave();
    if (result.is_valid() || raised) return result.release().ptr();
    return PyObject_Vectorcall(add.fallback, arguments, 0, names);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
    Add& add = *reinterpret_cast<Add*>(self);
    Py_VISIT(Py_TYPE(self));
    for (PyObject* part : {add.ring_object, add.lock_object, add.coerce, add.refresh, add.fallback, add.attributes})
        Py_VISIT(part);
    return 0;
}

int clear(PyObject* self) {
    Add& add = *reinterpret_cast<Add*>(self);
    Py_CLEAR(add.attributes);
    return 0;
}

void destroy(PyObject* self) {
    Add& add = *reinterpret_cast<Add*>(self);
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (PyObject* part : {add.ring_object, add.lock_object, add.coerce, add.refresh, add.fallback, add.attributes})
        Py_XDECREF(part);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Add, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Add, attributes), READONLY, nullptr},
    {"asked", T_PYSSIZET, offsetof(Add, asked), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"relive._ring._native.Add", sizeof(Add), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

PyTypeObject* add_type = nullptr;

nb::object adding(nb::handle_t<PyRing> ring, nb::handle_t<Lock> lock, nb::object coerce, nb::object refresh,
                  nb::object fallback, bool several) {
    for (const nb::object& callable : {coerce, refresh, fallback})
        if (!PyCallable_Check(callable.ptr()) && !(callable.is(refresh) && refresh.is_none()))
            throw nb::type_error("relive._ring._native.adding: it cannot be called");
    nb::object made = nb::steal(add_type->tp_alloc(add_type, 0));
    if (!made.is_valid()) nb::raise_python_error();
    Add& add = *reinterpret_cast<Add*>(made.ptr());
    add.call = call;
    add.ring = nb::cast<PyRing*>(ring);
    add.lock = nb::cast<Lock*>(lock);
    add.ring->guard(lock);
    add.several = several;
    add.ring_object = ring.inc_ref().ptr();
    add.lock_object = lock.inc_ref().ptr();
    add.coerce = coerce.release().ptr();
    add.refresh = refresh.release().ptr();
    add.fallback = fallback.release().ptr();
    return made;
}

}  // namespace
}  // namespace relive

void bind_add(nanobind::module_& m) {
    using namespace relive;
    add_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!add_type) nb::raise_python_error();
    nb::class_<Lock>(m, "Lock")
        .def(nb::init<>())
        .def("taken", &Lock::taken)
        .def("attempt", &Lock::attempt)
        .def("still", &Lock::still)
        .def("forked", &Lock::forked)
        .def("__enter__",
             [](Lock& lock) {
                 if (!lock.enter()) nb::raise_python_error();
                 return true;
             })
        .def(
            "__exit__",
            [](Lock& lock, nb::handle, nb::handle, nb::handle) {
                if (!lock.taken()) throw std::runtime_error("relive._ring._native.Lock: not taken");
                lock.leave();
            },
            nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none());
    m.def(
        "ending", [](bool begun) { Interpreter::ending = begun ? PyThread_get_thread_ident() : 0; }, nb::arg("begun"));
    m.def("away", [] { return Interpreter::away.load(); });
    m.def("adding", &adding, nb::arg("ring"), nb::arg("lock"), nb::arg("coerce"), nb::arg("refresh").none(),
          nb::arg("fallback"), nb::arg("several"));
}
