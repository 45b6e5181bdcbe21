// `sample` and `update_priorities` as objects that are called without a Python frame. They leave rare arguments and all
// errors to the same calls in relive._buffer.drawing.
#include <numpy/random/bitgen.h>

#include <algorithm>
#include <cmath>

#include "bind_ring.hpp"
#include "callable.hpp"
#include "joint.hpp"
#include "updates.hpp"

namespace relive {
namespace {

PyObject* left_to(const nb::object& fallback, PyObject* const* arguments, Py_ssize_t given, PyObject* names) {
    return PyObject_Vectorcall(fallback.ptr(), arguments, size_t(given), names);
}

// The uniforms of NumPy's own generators, without a call of Python's: the numbers are those of `rng.random(n)`.
class Uniforms {
public:
    // False where `rng` is a generator of another class. One that is known may have got other bits: `rng.__init__`.
    bool use(const nb::object& rng) {
        if (rng.is(rng_) && (!bits_ || rng.attr(bits_name_).is(source_))) return bits_;
        rng_ = nb::object();
        bits_ = nullptr;
        if (rng.type().is(nb::module_::import_("numpy.random").attr("Generator"))) {
            source_ = rng.attr(bits_name_);
            const nb::object capsule = source_.attr("capsule");
            acquire_ = source_.attr("lock").attr("acquire");
            release_ = source_.attr("lock").attr("release");
            bits_ = static_cast<bitgen_t*>(PyCapsule_GetPointer(capsule.ptr(), "BitGenerator"));
            if (!bits_) nb::raise_python_error();
        }
        rng_ = rng;
        return bits_;
    }
    // False where another thread has the generator at this moment. Taking its lock costs as much as a tenth of a draw
    // behind a learner's step, so that is left out where there is no other thread.
    bool fill(double* u, int64_t n) const {
        const bool alone = only_thread();
        if (!alone && !acquire_(false).is(nb::handle(Py_True))) return false;
        for (int64_t i = 0; i < n; ++i) u[i] = bits_->next_double(bits_->state);
        if (!alone) release_();
        return true;
    }

private:
    const nb::object bits_name_ = nb::steal(PyUnicode_InternFromString("bit_generator"));
    nb::object rng_, source_, acquire_, release_;  // the source has the memory of `bits_`
    bitgen_t* bits_ = nullptr;
};

// What a buffer counts; see `Tally` and `Notices` in relive._buffer.
enum Count { DRAWN, UPDATES, STALE };
enum Notice_ { DUE, DRAWS };

class Sample : public Call {
public:
    Sample(nb::object lock, nb::object chooser, nb::object expansion, nb::object tally, InOut<int64_t> counts,
           InOut<int64_t> notices, int64_t first_notice, int64_t most, nb::object batch, nb::object fallback,
           nb::object joint, nb::object redraw)
        : lock_(nb::cast<Lock&>(lock)),
          chooser_(nb::cast<Chooser&>(chooser)),
          expansion_(nb::cast<Expansion&>(expansion)),
          counts_(counts.data),
          notices_(notices.data),
          first_notice_(first_notice),
          most_(most),
          tally_(std::move(tally)),
          batch_(std::move(batch)),
          fields_(batch_.attr("__dict__")["_fields"]),
          set_fields_(reinterpret_cast<descrsetfunc>(PyType_GetSlot(Py_TYPE(fields_.ptr()), Py_tp_descr_set))),
          fallback_(std::move(fallback)),
          redraw_(std::move(redraw)),
          joint_(joint),
          held_(nb::make_tuple(lock, chooser, expansion, counts.object, notices.object, joint)) {
        require(counts.size == 3 && notices.size == 2, "relive._ring._native.sampling: counts of another shape");
        if (!PyType_Check(batch_.ptr()) || !set_fields_ || !PyCallable_Check(fallback_.ptr()) ||
            !PyCallable_Check(redraw_.ptr()))
            throw nb::type_error("relive._ring._native.sampling: no batch, or nothing that can be called");
        auto layout = std::make_shared<Layout>();
        expansion_.lay_out(*layout);
        const nb::object key = nb::make_tuple("ids");  // behind which an expansion may have more fields
        const auto is_ids = [&](const Layout::Field& field) { return field.keys.is_valid() && field.keys.equal(key); };
        ids_ = size_t(std::ranges::find_if(layout->fields(), is_ids) - layout->fields().begin());
        require(ids_ < layout->fields().size(), "relive._ring._native.sampling: items without ids");
        weights_ = layout->add("weights", NPY_FLOAT);
        layout->end();
        layout_ = layout;
        for (const char* name : {"rng", "last", "batch_size", "beta"})
            names_.push_back(nb::steal(PyUnicode_InternFromString(name)));
    }

    PyObject* operator()(PyObject* const* arguments, Py_ssize_t given, PyObject* names) override {
        int64_t n = 0;
        std::optional<double> beta;
        if (read(arguments, given, names, n, beta) && !lock_.taken()) {
            const Entered entered(lock_);
            if (nb::object batch = attempt(n, beta); batch.is_valid()) return batch.release().ptr();
        }
        return left_to(fallback_, arguments, given, names);
    }

    int traverse(visitproc visit, void* arg) const override {
        for (const nb::object* held : {&tally_, &batch_, &fields_, &fallback_, &redraw_, &held_}) Py_VISIT(held->ptr());
        return 0;
    }

private:
    Lock& lock_;
    Chooser& chooser_;
    Expansion& expansion_;
    int64_t *counts_, *notices_;
    int64_t first_notice_, most_;
    nb::object tally_, batch_, fields_;
    descrsetfunc set_fields_;
    nb::object fallback_, redraw_;
    Joint joint_;
    nb::object held_;
    std::vector<nb::object> names_;  // interned
    std::shared_ptr<const Layout> layout_;
    size_t ids_ = 0, weights_ = 0;
    Uniforms uniforms_;
    std::vector<char> scratch_;  // of small batches, during whose draw no other call is made

    nb::handle name(size_t i) const { return names_[i]; }

    // Whether the arguments are the usual ones.
    bool read(PyObject* const* arguments, Py_ssize_t given, PyObject* names, int64_t& n, std::optional<double>& beta) {
        PyObject *size = given == 1 ? arguments[0] : nullptr, *exponent = nullptr;
        if (given > 1) return false;
        for (Py_ssize_t k = 0; names && k < Py_SIZE(names); ++k) {
            PyObject* const text = tuple_item(names, k);
            if (text == name(2).ptr() && !size)
                size = arguments[given + k];
            else if (text == name(3).ptr())
                exponent = arguments[given + k];
            else
                return false;
        }
        if (!size || !(PyLong_CheckExact(size) || PyArray_IsScalar(size, Integer))) return false;
        const nb::object whole = nb::steal(PyNumber_Index(size));
        n = whole.is_valid() ? PyLong_AsLongLong(whole.ptr()) : -1;
        if (n == -1 && PyErr_Occurred()) PyErr_Clear();
        if (n < 1 || n > most_) return false;
        if (!exponent || exponent == Py_None) return true;
        if (!PyFloat_CheckExact(exponent) || !chooser_.prioritizes()) return false;
        beta = float_of(exponent);
        return *beta >= 0.0 && std::isfinite(*beta);
    }

    // The batch; an invalid object where the call is left to Python, and nothing has changed.
    nb::object attempt(int64_t n, const std::optional<double>& beta) {
        const bool watched = chooser_.prioritizes() && !counts_[UPDATES];
        if (notices_[DUE] || (watched && notices_[DRAWS] + 1 == first_notice_)) return {};
        if (!joint_.look()) return {};
        const int64_t known = chooser_.refresh();
        joint_.settle();
        if (known < (chooser_.replacement() ? 1 : n)) return {};
        if (!uniforms_.use(tally_.attr(name(0)))) return {};

        // All memory first: behind the draw from the generator nothing fails.
        const nb::object items = Items::make(layout_, npy_intp(n));
        nb::object batch = nb::steal(PyType_GenericAlloc(as_type(batch_), 0));
        if (!batch.is_valid() || set_fields_(fields_.ptr(), batch.ptr(), items.ptr()) < 0 ||
            PyObject_GenericSetDict(batch.ptr(), Items::attributes(items).ptr(), nullptr) < 0)
            nb::raise_python_error();
        nb::object last = nb::steal(PyBytes_FromStringAndSize(nullptr, n * 12));
        if (!last.is_valid()) nb::raise_python_error();
        const int64_t numbers = chooser_.numbers(n);
        const size_t room = size_t(numbers + n * (2 + expansion_.scratch())) * 8;
        const bool alone = n < WORTH_RELEASING && n * expansion_.rows() < WORTH_RELEASING;
        const auto own = std::make_unique_for_overwrite<char[]>(alone ? 0 : room);
        if (alone && scratch_.size() < room) scratch_.resize(room);
        char* const scratch = alone ? scratch_.data() : own.get();
        std::vector<char*> to;
        for (size_t f = 0; f < layout_->fields().size(); ++f) to.push_back(Items::data(items, f));
        chooser_.prepare(n);

        auto* u = reinterpret_cast<double*>(scratch);
        auto* copying = reinterpret_cast<int64_t*>(u + numbers);
        auto* slots = copying + n * expansion_.scratch();
        auto* values = reinterpret_cast<double*>(slots + n);
        auto* weights = reinterpret_cast<float*>(to[weights_]);
        if (!uniforms_.fill(u, numbers + n * expansion_.numbers())) return {};
        const double exponent = chooser_.begin(beta ? &*beta : nullptr);
        run(n, [&] { chooser_.choose(u, n, exponent, slots, values, weights); });
        expansion_.expand(slots, n, to.data(), copying);
        if (joint_) {
            const auto* ids = reinterpret_cast<const int64_t*>(to[ids_]);
            if (joint_.overtaken(ids, n, u)) return redrawn(n, slots, weights, values, exponent, beta);
            joint_.drew(chooser_, ids, n, slots);
        }
        std::memcpy(PyBytes_AsString(last.ptr()), to[ids_], size_t(n) * 8);
        std::memcpy(PyBytes_AsString(last.ptr()) + n * 8, weights, size_t(n) * 4);
        nb::setattr(tally_, name(1), last);
        counts_[DRAWN] += n;
        if (watched) ++notices_[DRAWS];
        return batch;
    }

    // The batch that Python makes of these items: it draws again what other processes have written over.
    nb::object redrawn(int64_t n, const int64_t* slots, const float* weights, const double* values, double exponent,
                       const std::optional<double>& beta) {
        Out<int64_t> which(n);
        Out<float> weight(n);
        Out<double> mass(n);
        std::copy_n(slots, n, which.data);
        std::copy_n(weights, n, weight.data);
        std::copy_n(values, n, mass.data);
        const nb::object masses = chooser_.leaves_masses() ? mass.array : nb::none();
        return redraw_(which.array, weight.array, masses, exponent, beta);
    }
};

class Update : public Call {
public:
    Update(nb::object lock, nb::object chooser, InOut<int64_t> counts, nb::object fallback, nb::object joint)
        : lock_(nb::cast<Lock&>(lock)),
          chooser_(nb::cast<Chooser&>(chooser)),
          counts_(counts.data),
          fallback_(std::move(fallback)),
          joint_(joint),
          held_(nb::make_tuple(lock, chooser, counts.object, joint)) {
        require(counts.size == 3, "relive._ring._native.updating: counts of another shape");
        if (!PyCallable_Check(fallback_.ptr())) throw nb::type_error("relive._ring._native.updating: no call");
    }

    PyObject* operator()(PyObject* const* arguments, Py_ssize_t given, PyObject* names) override {
        nb::handle ids, td_error;
        if (read(arguments, given, names, ids, td_error) && !lock_.taken()) {
            const int64_t kept = attempt(ids, td_error);
            if (kept >= 0) return PyLong_FromLongLong(kept);
            forget_error();
            if (PyErr_Occurred()) return nullptr;
        }
        return left_to(fallback_, arguments, given, names);
    }

    int traverse(visitproc visit, void* arg) const override {
        Py_VISIT(fallback_.ptr());
        Py_VISIT(held_.ptr());
        return 0;
    }

private:
    Lock& lock_;
    Chooser& chooser_;
    int64_t* counts_;
    nb::object fallback_;
    Joint joint_;
    nb::object held_;

    // Whether there are two arguments, by position or by name.
    static bool read(PyObject* const* arguments, Py_ssize_t given, PyObject* names, nb::handle& ids,
                     nb::handle& td_error) {
        const Py_ssize_t named = names ? Py_SIZE(names) : 0;
        if (given + named != 2) return false;
        if (given > 0) ids = arguments[0];
        if (given > 1) td_error = arguments[1];
        for (Py_ssize_t k = 0; k < named; ++k) {
            PyObject* const text = tuple_item(names, k);
            if (PyUnicode_CompareWithASCIIString(text, "td_error") == 0)
                td_error = arguments[given + k];
            else if (!ids && PyUnicode_CompareWithASCIIString(text, "ids") == 0)
                ids = arguments[given + k];
        }
        return ids && td_error;
    }

    // How many priorities were set; -1, with or without an exception, where the call is left to Python.
    int64_t attempt(nb::handle ids, nb::handle td_error) {
        Updates updates;
        if (take_plain(ids, td_error, updates)) {
            const Entered entered(lock_);
            // Another thread may have changed the arrays while this one waited: look at them again.
            return take_plain(ids, td_error, updates) ? set(updates) : -1;
        }
        Converted converted;
        if (!converted.acquire(ids, td_error)) return -1;
        const Entered entered(lock_);
        return converted.settle(updates) ? set(updates) : -1;
    }

    int64_t set(const Updates& updates) {
        if (!joint_.look()) return -1;
        const int64_t kept = chooser_.update(updates);
        joint_.settle();
        if (kept < 0) return kept;
        joint_.updated(updates.n, updates.n - kept);
        counts_[UPDATES] += updates.n;
        counts_[STALE] += updates.n - kept;
        return kept;
    }
};

}  // namespace
}  // namespace relive

void bind_draw(nanobind::module_& m) {
    using namespace relive;
    m.def(
        "sampling",
        [](nb::handle_t<Lock> lock, nb::handle_t<Chooser> chooser, nb::handle_t<Expansion> expansion, nb::object tally,
           InOut<int64_t> counts, InOut<int64_t> notices, int64_t first_notice, int64_t most, nb::object batch,
           nb::object fallback, nb::object joint, nb::object redraw) {
            return callable(std::make_unique<Sample>(
                nb::borrow(lock), nb::borrow(chooser), nb::borrow(expansion), std::move(tally), counts, notices,
                first_notice, most, std::move(batch), std::move(fallback), std::move(joint), std::move(redraw)));
        },
        nb::arg("lock"), nb::arg("chooser"), nb::arg("expansion"), nb::arg("tally"), nb::arg("counts"),
        nb::arg("notices"), nb::arg("first_notice"), nb::arg("most"), nb::arg("batch"), nb::arg("fallback"),
        nb::arg("joint").none(), nb::arg("redraw"));
    m.def(
        "updating",
        [](nb::handle_t<Lock> lock, nb::handle_t<Chooser> chooser, InOut<int64_t> counts, nb::object fallback,
           nb::object joint) {
            return callable(std::make_unique<Update>(nb::borrow(lock), nb::borrow(chooser), counts, std::move(fallback),
                                                     std::move(joint)));
        },
        nb::arg("lock"), nb::arg("chooser"), nb::arg("counts"), nb::arg("fallback"), nb::arg("joint").none());
}
