// The Python module relive._native: the sum tree, the dense set and the powers, bound to arrays that Python owns.
// Arguments are those of relive._kernels_numpy and valid already; only what would corrupt memory is looked at here.
#define RELIVE_IMPORTS_NUMPY
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "dense.hpp"
#include "kernels.hpp"
#include "numpy_api.hpp"

void bind_files(nanobind::module_& m);
void bind_ring(nanobind::module_& m);

namespace relive {
namespace {

// The builds that this module has and this processor can run, best first.
std::vector<const Kernels*> runnable() {
    std::vector<const Kernels*> found;
#if defined(RELIVE_WITH_AVX512)
    if (__builtin_cpu_supports("x86-64-v4")) found.push_back(&avx512::table);
#endif
#if defined(RELIVE_WITH_AVX2)
    if (__builtin_cpu_supports("x86-64-v3")) found.push_back(&avx2::table);
#endif
    found.push_back(&baseline::table);
    return found;
}

// The best build, or the one that RELIVE_SIMD names.
const Kernels* choose() {
    const std::vector<const Kernels*> found = runnable();
    const char* wanted = std::getenv("RELIVE_SIMD");
    if (!wanted || !*wanted) return found.front();
    std::string names;
    for (const Kernels* kernels : found) {
        if (std::strcmp(kernels->name, wanted) == 0) return kernels;
        names += (names.empty() ? "`" : ", `") + std::string(kernels->name) + "`";
    }
    const std::string text = "Expected one of " + names + ", got `" + wanted + "` - at `RELIVE_SIMD`";
    PyErr_SetString(PyExc_ValueError, text.c_str());
    nb::raise_python_error();
}

const Kernels* kernels = nullptr;

// Room for a list of indices: on the stack while it is short.
class Scratch {
public:
    explicit Scratch(std::int64_t size) {
        if (size > FEW) many_.reset(new std::int64_t[static_cast<std::size_t>(size)]);
    }
    std::int64_t* data() { return many_ ? many_.get() : few_; }

private:
    static constexpr std::int64_t FEW = 512;
    std::int64_t few_[FEW];
    std::unique_ptr<std::int64_t[]> many_;
};

class SumTree : public Listener {
public:
    double newcomer = 0.0;  // what a new item gets when a ring reports it

    void change(const std::int64_t* removed, std::int64_t removed_count, const std::int64_t* added,
                std::int64_t added_count) override {
        write({removed, removed_count, added, added_count, &newcomer, 0});
    }

    SumTree(nb::list sums, nb::list mins, nb::object state)
        : arrays_(nb::make_tuple(nb::tuple(sums), nb::tuple(mins), state)) {
        const std::size_t levels = sums.size();
        bool good = levels >= 1 && levels <= MAX_LEVELS && mins.size() == levels - 1 && In<double>(state).size == 3;
        tree_.levels = static_cast<int>(levels);
        tree_.state = writable<double>(state);
        std::int64_t expected = good ? In<double>(sums[0]).size : 0;
        for (std::size_t l = 0; good && l < levels; ++l) {
            tree_.sums[l] = writable<double>(sums[l]);
            good = expected >= FAN_OUT && expected % FAN_OUT == 0 && In<double>(sums[l]).size == expected;
            if (l > 0) {
                tree_.mins[l - 1] = writable<double>(mins[l - 1]);
                good = good && In<double>(mins[l - 1]).size == expected;
            }
            tree_.groups[l] = expected / FAN_OUT;
            expected = (tree_.groups[l] + FAN_OUT - 1) / FAN_OUT * FAN_OUT;
        }
        if (!good || tree_.groups[levels - 1] != 1)
            throw nb::value_error("relive._native.Tree: levels of wrong lengths");
    }

    nb::object get(nb::handle indices) const {
        const In<std::int64_t> at(indices);
        Out<double> values(at.size);
        for (std::int64_t i = 0; i < at.size; ++i) values.data[i] = tree_.sums[0][at.data[i]];
        return values.array;
    }

    void set(nb::handle indices, nb::handle values) {
        const In<std::int64_t> at(indices);
        const In<double> given(values);
        if (given.size != at.size) throw nb::value_error("relive._native.Tree.set: lengths differ");
        write({nullptr, 0, at.data, at.size, given.data, 1});
    }

    void fill_zero_and_set(nb::handle removed, nb::handle added, double value) {
        const In<std::int64_t> gone(removed), come(added);
        write({gone.data, gone.size, come.data, come.size, &value, 0});
    }

    void fill_zero_and_assign(nb::handle removed, nb::handle added, nb::handle values) {
        const In<std::int64_t> gone(removed), come(added);
        const In<double> given(values);
        if (given.size != come.size) throw nb::value_error("relive._native.Tree.fill_zero_and_assign: lengths differ");
        write({gone.data, gone.size, come.data, come.size, given.data, 1});
    }

    nb::tuple find(nb::handle prefix) const {
        const In<double> target(prefix);
        Out<std::int64_t> index(target.size);
        Out<double> value(target.size);
        run(target.size, [&] { kernels->find(tree_, target.data, target.size, index.data, value.data); });
        return nb::make_tuple(std::move(index.array), std::move(value.array));
    }

    nb::tuple draw(nb::handle uniforms, bool stratified) const {
        const In<double> u(uniforms);
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        run(u.size, [&] { kernels->draw(tree_, u.data, u.size, stratified, index.data, value.data); });
        return nb::make_tuple(std::move(index.array), std::move(value.array));
    }

    nb::tuple draw_distinct(nb::handle uniforms) {
        const In<double> u(uniforms);
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        Scratch scratch(u.size);
        run(u.size, [&] { kernels->draw_distinct(tree_, u.data, u.size, index.data, value.data, scratch.data()); });
        return nb::make_tuple(std::move(index.array), std::move(value.array));
    }

private:
    void write(const Writes& writes) {
        const std::int64_t count = writes.removed_count + writes.added_count;
        Scratch scratch(count);
        run(count, [&] { kernels->write(tree_, writes, scratch.data()); });
    }

    Tree tree_;
    nb::object arrays_;  // keeps them alive
};

class DenseSet : public Listener {
public:
    void change(const std::int64_t* removed, std::int64_t removed_count, const std::int64_t* added,
                std::int64_t added_count) override {
        visit([&](const auto& set) { set.change(removed, removed_count, added, added_count); });
    }

    DenseSet(nb::object order, nb::object where, nb::object state)
        : narrow_(is_array<std::int32_t>(order)), arrays_(nb::make_tuple(order, where, state)) {
        if (narrow_)
            narrow_set_ = {writable<std::int32_t>(order), writable<std::int32_t>(where), writable<std::int64_t>(state)};
        else
            wide_set_ = {writable<std::int64_t>(order), writable<std::int64_t>(where), writable<std::int64_t>(state)};
    }

    void change_places(nb::handle removed, nb::handle added) {
        const In<std::int64_t> gone(removed), come(added);
        change(gone.data, gone.size, come.data, come.size);
    }

    nb::object draw(nb::handle uniforms) const {
        const In<double> u(uniforms);
        Out<std::int64_t> member(u.size);
        run(u.size, [&] { visit([&](const auto& set) { set.draw(u.data, u.size, member.data); }); });
        return member.array;
    }

    nb::object draw_distinct(nb::handle uniforms) const {
        const In<double> u(uniforms);
        Out<std::int64_t> member(u.size);
        run(u.size, [&] { visit([&](const auto& set) { set.draw_distinct(u.data, u.size, member.data); }); });
        return member.array;
    }

private:
    template <typename Visitor>
    void visit(Visitor&& visitor) const {
        if (narrow_)
            visitor(narrow_set_);
        else
            visitor(wide_set_);
    }

    bool narrow_;
    Dense<std::int32_t> narrow_set_{};
    Dense<std::int64_t> wide_set_{};
    nb::object arrays_;  // keeps them alive
};

nb::object power(nb::handle x, double exponent) {
    const In<double> given(x);
    Out<double> result(given.size);
    run(given.size, [&] { kernels->power(given.data, given.size, exponent, result.data); });
    return result.array;
}

nb::tuple mass(nb::handle td_error, double eps, double alpha) {
    const In<double> td(td_error);
    Out<double> result(td.size);
    double largest = 0.0;
    run(td.size, [&] { largest = kernels->mass(td.data, td.size, eps, alpha, result.data); });
    return nb::make_tuple(std::move(result.array), largest);
}

nb::object weights(nb::handle values, double reference, double beta) {
    const In<double> given(values);
    Out<float> result(given.size);
    run(given.size, [&] { kernels->weights(given.data, given.size, reference, beta, result.data); });
    return result.array;
}

double smallest(nb::handle values) {
    const In<double> given(values);
    if (given.size == 0) throw nb::value_error("relive._native.smallest: no value");
    return kernels->smallest(given.data, given.size);
}

int import_numpy() {
    import_array1(-1);
    return 0;
}

}  // namespace

const Kernels& chosen() { return *kernels; }

}  // namespace relive

NB_MODULE(_native, m) {
    using namespace relive;
    if (import_numpy() < 0) nb::raise_python_error();
    kernels = choose();
    m.doc() = "The kernels in C++; relive._kernels_numpy has the same functions and describes them.";
    m.def("simd", [] { return kernels->name; });
    m.def("power", &power, nb::arg("x"), nb::arg("exponent"));
    m.def("mass", &mass, nb::arg("td_error"), nb::arg("eps"), nb::arg("alpha"));
    m.def("weights", &weights, nb::arg("values"), nb::arg("reference"), nb::arg("beta"));
    m.def("smallest", &smallest, nb::arg("values"));
    nb::class_<Listener>(m, "Listener");
    nb::class_<SumTree, Listener>(m, "Tree")
        .def(nb::init<nb::list, nb::list, nb::object>(), nb::arg("sums"), nb::arg("mins"), nb::arg("state"))
        .def_rw("newcomer", &SumTree::newcomer)
        .def("get", &SumTree::get, nb::arg("indices"))
        .def("set", &SumTree::set, nb::arg("indices"), nb::arg("values"))
        .def("fill_zero_and_set", &SumTree::fill_zero_and_set, nb::arg("removed"), nb::arg("added"), nb::arg("value"))
        .def("fill_zero_and_assign", &SumTree::fill_zero_and_assign, nb::arg("removed"), nb::arg("added"),
             nb::arg("values"))
        .def("find", &SumTree::find, nb::arg("prefix"))
        .def("draw", &SumTree::draw, nb::arg("u"), nb::arg("stratified"))
        .def("draw_distinct", &SumTree::draw_distinct, nb::arg("u"));
    nb::class_<DenseSet, Listener>(m, "Dense")
        .def(nb::init<nb::object, nb::object, nb::object>(), nb::arg("order"), nb::arg("where"), nb::arg("state"))
        .def("change", &DenseSet::change_places, nb::arg("removed"), nb::arg("added"))
        .def("draw", &DenseSet::draw, nb::arg("u"))
        .def("draw_distinct", &DenseSet::draw_distinct, nb::arg("u"));
    bind_files(m);
    bind_ring(m);
}
