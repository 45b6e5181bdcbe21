// `add` and `extend` as objects that are called without a Python frame; relive._buffer.adding has what they leave to
// Python.
#include "bind_ring.hpp"
#include "callable.hpp"

namespace relive {
namespace {

class Add : public Call {
public:
    Add(nb::handle_t<PyRing> ring, nb::handle_t<Lock> lock, nb::object coerce, nb::object refresh, nb::object fallback,
        bool several, const std::optional<InOut<int64_t>>& room)
        : ring_(nb::cast<PyRing&>(ring)),
          lock_(nb::cast<Lock&>(lock)),
          coerce_(std::move(coerce)),
          refresh_(std::move(refresh)),
          fallback_(std::move(fallback)),
          held_(nb::make_tuple(ring, lock, room ? nb::borrow(room->object) : nb::none())),
          room_(room ? room->data : nullptr),
          several_(several) {
        for (const nb::object& callable : {coerce_, refresh_, fallback_})
            if (!PyCallable_Check(callable.ptr()) && !(callable.is(refresh_) && refresh_.is_none()))
                throw nb::type_error("relive._ring._native.adding: it cannot be called");
        require(!room || room->size == 1, "relive._ring._native.adding: `room` is not one number");
        ring_.guard(lock);
    }

    PyObject* operator()(PyObject* const* arguments, Py_ssize_t given, PyObject* names) override {
        if (given) {
            const char* name = several_ ? "extend" : "add";
            return PyErr_Format(PyExc_TypeError,
                                "ReplayBuffer.%s() takes values by name: `buffer.%s(obs=..., action=...)`", name, name);
        }
        if (!lock_.taken()) {  // else Python refuses the call
            const Entered entered(lock_);
            const Read read{ring_.inputs};
            nb::object ids = attempt(arguments, names);
            if (ids.is_valid()) return ids.release().ptr();
            forget_error();
            if (PyErr_Occurred()) return nullptr;
        }
        return PyObject_Vectorcall(fallback_.ptr(), arguments, 0, names);
    }

    int traverse(visitproc visit, void* arg) const override {
        for (const nb::object* held : {&coerce_, &refresh_, &fallback_, &held_}) Py_VISIT(held->ptr());
        return 0;
    }

private:
    PyRing& ring_;
    Lock& lock_;
    nb::object coerce_, refresh_, fallback_, held_;
    int64_t* room_;  // steps that a limiter lets in without being asked; null: there is none
    bool several_;

    // Lets go of the values of a call.
    struct Read {
        Inputs& inputs;
        ~Read() { inputs.release(); }
    };

    // The ids of the steps; an invalid object, without an exception, where the call is left to Python.
    nb::object attempt(PyObject* const* arguments, PyObject* names) {
        Inputs& inputs = ring_.inputs;
        const Ring& ring = ring_.ring;
        if (ring_.pending() || !inputs.acquire(arguments, names, several_, ring.lanes, coerce_.ptr())) return {};
        if (inputs.gives_priority()) {
            if (!ring.given || refresh_.is_none()) return {};
            // Earlier steps without a priority get the largest so far, which these steps may raise.
            refresh_();
        }
        if (!inputs.settle()) return {};
        const Steps steps = inputs.steps();
        if (ring.watched & UNBOOTSTRAPPED && steps.loses_a_final()) return {};
        if (ring_.reaches_limit(steps)) return {};
        const bool one_axis = !several_ || inputs.flat();
        const npy_intp count = npy_intp(steps.n * steps.length);
        if (room_ && *room_ < count) return {};
        const Lead& lead = inputs.lead();
        Out<std::int64_t> ids = one_axis ? Out<std::int64_t>(count)
                                         : Out<std::int64_t>(std::vector<npy_intp>{lead.sizes[0], lead.sizes[1]});
        if (room_) *room_ -= count;
        ring_.put(steps, ids.data);
        ring_.asked += inputs.asked();
        ring_.notice();
        return ids.array;
    }
};

}  // namespace
}  // namespace relive

void bind_add(nanobind::module_& m) {
    using namespace relive;
    nb::class_<Lock>(m, "Lock")
        .def(nb::init<>())
        .def("taken", &Lock::taken)
        .def("held", &Lock::held)
        .def("hold", [](nb::handle_t<Lock> lock) { return Holding{nb::borrow(lock), nb::cast<Lock&>(lock)}; })
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
    nb::class_<Holding>(m, "Holding")
        .def("__enter__",
             [](Holding& holding) {
                 if (!holding.lock.hold()) nb::raise_python_error();
                 return true;
             })
        .def(
            "__exit__",
            [](Holding& holding, nb::handle, nb::handle, nb::handle) {
                if (!holding.lock.held()) throw std::runtime_error("relive._ring._native.Holding: not held");
                holding.lock.release();
            },
            nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none());
    m.def(
        "ending", [](bool begun) { Interpreter::ending = begun ? PyThread_get_thread_ident() : 0; }, nb::arg("begun"));
    m.def("away", [] { return Interpreter::away.load(); });
    m.def(
        "adding",
        [](nb::handle_t<PyRing> ring, nb::handle_t<Lock> lock, nb::object coerce, nb::object refresh,
           nb::object fallback, bool several, std::optional<InOut<int64_t>> room) {
            return callable(std::make_unique<Add>(ring, lock, std::move(coerce), std::move(refresh),
                                                  std::move(fallback), several, room));
        },
        nb::arg("ring"), nb::arg("lock"), nb::arg("coerce"), nb::arg("refresh").none(), nb::arg("fallback"),
        nb::arg("several"), nb::arg("room").none());
}
