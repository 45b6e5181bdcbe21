// The sum tree and the queue of anchors, bound to arrays that Python owns.
#include "bind_blend.hpp"
#include "bind_recent.hpp"
#include "shuffle.hpp"

namespace relive {
namespace {

// Every item, or every episode, equally likely.
class Equal : public Chooser {
public:
    Equal(nb::object queue, bool replacement)
        : queue_(nb::cast<PyQueue&>(queue)), replacement_(replacement), held_(std::move(queue)) {}

    int64_t refresh() override { return queue_.refresh(); }
    bool replacement() const override { return replacement_; }
    bool prioritizes() const override { return false; }
    void prepare(int64_t) override {}
    double begin(const double*) override { return 0.0; }
    void choose(const double* u, int64_t n, double, int64_t* slots, double*, float* weights) override {
        queue_.choose(u, n, replacement_, slots);
        if (weights) std::fill_n(weights, n, 1.0f);
    }
    void probability(const int64_t* slots, int64_t n, double* result) override { queue_.chances(slots, n, result); }

private:
    PyQueue& queue_;
    bool replacement_;
    nb::object held_;
};

// Items by their ids, from the place `at` on: the batches of an epoch.
class Listed : public Chooser {
public:
    Listed(nb::handle_t<PyRing> ring, InOut<int64_t> ids, InOut<int64_t> at, int64_t size)
        : ring_(nb::cast<const PyRing&>(ring).ring),
          ids_(ids),
          at_(at.data),
          size_(size),
          held_(nb::make_tuple(ring, ids.object, at.object)) {
        require(at.size == 1 && size > 0, "relive._ring._native.Ring.listed: no size, or no place");
    }

    // 0 where one of the next items is gone.
    int64_t refresh() override {
        if (*at_ < 0 || *at_ > ids_.size) return 0;
        const int64_t n = std::min(size_, int64_t(ids_.size) - *at_);
        slots_.resize(size_t(n));
        states_.resize(size_t(n));
        return ring_.locate(ids_.data + *at_, n, slots_.data(), states_.data()) ? n : 0;
    }
    bool replacement() const override { return false; }
    bool prioritizes() const override { return false; }
    int64_t numbers(int64_t) const override { return 0; }
    void prepare(int64_t) override {}
    double begin(const double*) override { return 0.0; }
    void choose(const double*, int64_t n, double, int64_t* slots, double*, float* weights) override {
        std::copy_n(slots_.data(), n, slots);
        if (weights) std::fill_n(weights, n, 1.0f);
    }
    void probability(const int64_t*, int64_t n, double* result) override { std::fill_n(result, n, 1.0); }

private:
    const Ring& ring_;
    InOut<int64_t> ids_;
    const int64_t* at_;
    int64_t size_;
    nb::object held_;
    std::vector<int64_t> slots_;
    std::vector<std::uint8_t> states_;
};

nb::object listed(nb::handle_t<PyRing> ring, InOut<int64_t> ids, InOut<int64_t> at, int64_t size) {
    Chooser* const made = new Listed(ring, ids, at, size);
    return nb::cast(made, nb::rv_policy::take_ownership);
}

nb::object power(In<double> x, double exponent) {
    Out<double> result(x.size);
    run(x.size, [&] { chosen().power(x.data, x.size, exponent, result.data); });
    return result.array;
}

nb::object mass(In<double> td_error, double eps, double alpha) {
    Out<double> result(td_error.size);
    double largest = 0.0;
    run(td_error.size, [&] { largest = chosen().mass(td_error.data, td_error.size, eps, alpha, result.data); });
    return plan(plans().mass, result.array, nb::float_(largest));
}

nb::object weights(In<double> values, double reference, double beta) {
    Out<float> result(values.size);
    run(values.size, [&] { chosen().weights(values.data, values.size, reference, beta, result.data); });
    return result.array;
}

nb::object chooser_of_tree(nb::handle_t<SumTree> tree, nb::handle_t<PyRing> ring, InOut<std::int64_t, 2> seen,
                           InOut<double> draws, nb::object settings) {
    Chooser* const made = new Proportional(tree, ring, seen, draws, std::move(settings));
    return nb::cast(made, nb::rv_policy::take_ownership);
}

nb::object chooser_of_several(nb::list members, In<double> shares, bool shuffle, std::int64_t leader,
                              InOut<double> draws, nb::object settings) {
    Chooser* const made = new Mixed(members, shares, shuffle, leader, draws, std::move(settings));
    return nb::cast(made, nb::rv_policy::take_ownership);
}

// Items in the order of numbers, worked out as far as somebody asks for them.
class Ordered {
public:
    Ordered(InOut<int64_t> items, InOut<double> numbers)
        : ids_(items.size), held_(nb::make_tuple(items.object, numbers.object)) {
        require(items.size == numbers.size, "relive._ring._native.shuffled: lengths differ");
        require(all_uniforms(numbers.data, numbers.size), NO_UNIFORM);
        run(items.size, [&] { order_.emplace(items.data, numbers.data, items.size, ids_.data); });
    }

    nb::object ids() const { return ids_.array; }
    void upto(int64_t count) { order_->upto(count); }

private:
    Out<int64_t> ids_;
    nb::object held_;
    std::optional<Order> order_;
};

double smallest(In<double> values) {
    require(values.size > 0, "relive._ring._native.smallest: no value");
    return chosen().smallest(values.data, values.size);
}

}  // namespace
}  // namespace relive

void bind_samplers(nanobind::module_& m) {
    using namespace relive;
    m.def("power", &power, nb::arg("x"), nb::arg("exponent"));
    m.def("mass", &mass, nb::arg("td_error"), nb::arg("eps"), nb::arg("alpha"));
    m.def("weights", &weights, nb::arg("values"), nb::arg("reference"), nb::arg("beta"));
    m.def("smallest", &smallest, nb::arg("values"));
    m.def("listed", &listed, nb::arg("ring"), nb::arg("ids"), nb::arg("at"), nb::arg("size"));
    nb::class_<Ordered>(m, "Ordered").def_prop_ro("ids", &Ordered::ids).def("upto", &Ordered::upto, nb::arg("count"));
    m.def(
        "shuffled", [](InOut<int64_t> items, InOut<double> numbers) { return new Ordered(items, numbers); },
        nb::arg("items"), nb::arg("numbers"), nb::rv_policy::take_ownership);
    nb::class_<Chooser>(m, "Chooser");
    m.def("blending", &chooser_of_several, nb::arg("members"), nb::arg("shares"), nb::arg("shuffle"), nb::arg("leader"),
          nb::arg("draws"), nb::arg("settings"));
    nb::class_<SumTree>(m, "Tree")
        .def(nb::init<nb::list, nb::list, InOut<double>>(), nb::arg("sums"), nb::arg("mins"), nb::arg("state"))
        .def(
            "keep_raws", [](SumTree& self, nb::handle_t<SumTree> raws) { self.keep_raws(nb::borrow(raws)); },
            nb::arg("raws"))
        .def("get", &SumTree::get, nb::arg("indices"))
        .def("set", &SumTree::set, nb::arg("indices"), nb::arg("values"))
        .def("fill_zero_and_set", &SumTree::fill_zero_and_set, nb::arg("removed"), nb::arg("added"), nb::arg("value"))
        .def("restore", &SumTree::restore)
        .def("find", &SumTree::find, nb::arg("prefix"))
        .def("draw", &SumTree::draw, nb::arg("u"), nb::arg("stratified"))
        .def("draw_distinct", &SumTree::draw_distinct, nb::arg("u"))
        .def("sample", &SumTree::sample, nb::arg("u"), nb::arg("stratified"), nb::arg("replacement"), nb::arg("scale"),
             nb::arg("items"), nb::arg("beta"))
        .def("try_update", &SumTree::try_update, nb::arg("ring"), nb::arg("seen"), nb::arg("ids").none(),
             nb::arg("td_error").none(), nb::arg("initial"), nb::arg("eps"), nb::arg("alpha"))
        .def("refresh", &SumTree::refresh, nb::arg("ring"), nb::arg("seen"), nb::arg("initial"), nb::arg("alpha"))
        .def("update", &SumTree::update, nb::arg("slots"), nb::arg("td_error"), nb::arg("keep").none(), nb::arg("eps"),
             nb::arg("alpha"))
        .def("chooser", &chooser_of_tree, nb::arg("ring"), nb::arg("seen"), nb::arg("draws"), nb::arg("settings"));
    nb::class_<PyQueue>(m, "Queue")
        .def(nb::init<nb::handle_t<PyRing>, nb::object, nb::object, InOut<std::int64_t, 2>, InOut<std::int64_t, 2>>(),
             nb::arg("ring"), nb::arg("places"), nb::arg("firsts").none(), nb::arg("ends"), nb::arg("seen"))
        .def("refresh", &PyQueue::refresh)
        .def("draw", &PyQueue::draw, nb::arg("u"))
        .def("draw_distinct", &PyQueue::draw_distinct, nb::arg("u"))
        .def("draw_episodes", &PyQueue::draw_episodes, nb::arg("u"))
        .def(
            "chooser",
            [](nb::handle_t<PyQueue> queue, bool replacement) {
                Chooser* const made = new Equal(nb::borrow(queue), replacement);
                return nb::cast(made, nb::rv_policy::take_ownership);
            },
            nb::arg("replacement"))
        .def("behind", &PyQueue::behind, nb::arg("slots"))
        .def("probability", &PyQueue::probability, nb::arg("slots"))
        .def(
            "recency",
            [](nb::handle_t<PyQueue> queue, double rate, bool relative) {
                auto* const made = new PyRecency(nb::borrow(queue), rate, relative);
                return nb::cast(made, nb::rv_policy::take_ownership);
            },
            nb::arg("rate"), nb::arg("relative"));
    nb::class_<PyRecency>(m, "Recency")
        .def("refresh", &PyRecency::refresh)
        .def("draw", &PyRecency::draw, nb::arg("u"))
        .def("masses", &PyRecency::masses, nb::arg("slots"))
        .def("total", &PyRecency::total)
        .def("smallest", &PyRecency::smallest)
        .def(
            "chooser",
            [](nb::handle_t<PyRecency> recency, InOut<double> draws, nb::object settings) {
                Chooser* const made = new Newest(nb::borrow(recency), draws, std::move(settings));
                return nb::cast(made, nb::rv_policy::take_ownership);
            },
            nb::arg("draws"), nb::arg("settings"));
}
