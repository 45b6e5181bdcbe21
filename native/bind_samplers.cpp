// The sum tree and the queue of anchors, bound to arrays that Python owns.
#include "bind_tree.hpp"

namespace relive {
namespace {

// The queue over arrays of int32 or int64, as the capacity asks for.
class PyQueue {
public:
    PyQueue(nb::handle_t<PyRing> ring, nb::object places, nb::object firsts, InOut<std::int64_t, 2> ends,
            InOut<std::int64_t, 2> seen)
        : ring_(nb::cast<const PyRing&>(ring)),
          narrow_(is_array<std::int32_t, 2>(places)),
          held_(nb::make_tuple(ring, places, firsts, ends.object, seen.object)) {
        require(ends.shape[0] == ring_.ring.lanes && ends.shape[1] == 4,
                "relive._ring._native.Queue: `ends` is not `[L, 4]`");
        auto* lanes = reinterpret_cast<Ends*>(ends.data);
        Seen* looked = seen_of(ring_, seen);
        if (narrow_)
            fill(narrow_queue_, places, firsts, lanes, looked);
        else
            fill(wide_queue_, places, firsts, lanes, looked);
    }

    std::int64_t refresh() {
        std::int64_t size = 0;
        visit([&](auto& queue) { size = queue.refresh(ring_.ring); });
        return size;
    }

    nb::object draw(In<double> u) const {
        return drawn(u, [&](const auto& queue, int64_t* slots) { queue.draw(ring_.ring, u.data, u.size, slots); });
    }

    nb::object draw_distinct(In<double> u) const {
        std::int64_t size = 0;
        visit([&](const auto& queue) { size = queue.size(); });
        require(u.size <= size, "relive._ring._native.Queue.draw_distinct: more than there are");
        return drawn(
            u, [&](const auto& queue, int64_t* slots) { queue.draw_distinct(ring_.ring, u.data, u.size, slots); });
    }

    nb::object draw_episodes(In<double> u) const {
        bool follows = false;
        visit([&](const auto& queue) { follows = queue.firsts; });
        require(follows, "relive._ring._native.Queue.draw_episodes: episodes are not followed");
        return drawn(
            u, [&](const auto& queue, int64_t* slots) { queue.draw_episodes(ring_.ring, u.data, u.size, slots); });
    }

    // Choose n slots by uniforms; of a queue that is not empty, and holds as many.
    void choose(const double* u, int64_t n, bool replacement, int64_t* slots) const {
        visit([&](const auto& queue) {
            if (queue.firsts)
                queue.draw_episodes(ring_.ring, u, n, slots);
            else if (replacement)
                queue.draw(ring_.ring, u, n, slots);
            else
                queue.draw_distinct(ring_.ring, u, n, slots);
        });
    }

private:
    static constexpr const char* WRONG = "relive._ring._native.Queue: arrays that no queue has";
    const PyRing& ring_;
    bool narrow_;
    Queue<std::int32_t> narrow_queue_;
    Queue<std::int64_t> wide_queue_;
    nb::object held_;  // the ring and the arrays; nanobind's `keep_alive` aborts where there is no memory for it

    template <typename T>
    void fill(Queue<T>& queue, nb::handle places, nb::handle firsts, Ends* ends, Seen* seen) {
        queue.places = numbers<T>(places);
        queue.firsts = firsts.is_none() ? nullptr : numbers<T>(firsts);
        queue.ends = ends;
        queue.seen = seen;
        require(sound_seen(ring_.ring, seen) && sound_queues(ring_.ring, queue), WRONG);
    }

    template <typename T>
    T* numbers(nb::handle array) const {
        const auto given = taken<InOut<T, 2>>(array, WRONG);
        require(given.shape[0] == ring_.ring.lanes && given.shape[1] == ring_.ring.rows, WRONG);
        return given.data;
    }

    template <typename Visitor>
    void visit(Visitor&& visitor) {
        narrow_ ? visitor(narrow_queue_) : visitor(wide_queue_);
    }
    template <typename Visitor>
    void visit(Visitor&& visitor) const {
        narrow_ ? visitor(narrow_queue_) : visitor(wide_queue_);
    }

    template <typename Draw>
    nb::object drawn(const In<double>& u, Draw&& draw) const {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        visit([&](const auto& queue) {
            require(u.size == 0 || queue.size() > 0, "relive._ring._native.Queue: it is empty");
        });
        Out<std::int64_t> slots(u.size);
        run(u.size, [&] { visit([&](const auto& queue) { draw(queue, slots.data); }); });
        return slots.array;
    }
};

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
        std::fill_n(weights, n, 1.0f);
    }
    int64_t update(const Updates&) override { return -1; }

private:
    PyQueue& queue_;
    bool replacement_;
    nb::object held_;
};

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
    nb::class_<Chooser>(m, "Chooser");
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
            nb::arg("replacement"));
}
