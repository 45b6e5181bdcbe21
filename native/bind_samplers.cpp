// The sum tree and the queue of anchors, bound to arrays that Python owns.
#include <memory>

#include "bind_ring.hpp"
#include "checks.hpp"
#include "priorities.hpp"

namespace relive {
namespace {

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

Seen* seen_of(const PyRing& owner, const InOut<int64_t, 2>& seen) {
    require(seen.shape[0] == owner.ring.lanes && seen.shape[1] == 3, "relive._native: `seen` is not `[L, 3]`");
    return reinterpret_cast<Seen*>(seen.data);
}

constexpr const char* NO_UNIFORM = "relive._native: a uniform outside [0, 1)";

void require_priority(double value) {
    require(all_priorities(&value, 1), "relive._native: a priority that is negative or not finite");
}

class SumTree {
public:
    SumTree(nb::list sums, nb::list mins, InOut<double> state)
        : arrays_(nb::make_tuple(nb::tuple(sums), nb::tuple(mins), state.object)) {
        const std::size_t levels = sums.size();
        require(levels >= 1 && levels <= MAX_LEVELS && mins.size() == levels - 1 && state.size == STATE_SIZE,
                "relive._native.Tree: levels of wrong lengths");
        tree_.levels = static_cast<int>(levels);
        tree_.state = state.data;
        std::int64_t expected = level(sums[0]).size;
        for (std::size_t l = 0; l < levels; ++l) {
            const auto given = level(sums[l]);
            bool good = expected >= FAN_OUT && expected % FAN_OUT == 0 && given.size == expected;
            tree_.sums[l] = given.data;
            if (l > 0) {
                const auto least = level(mins[l - 1]);
                tree_.mins[l - 1] = least.data;
                good = good && least.size == expected;
            }
            require(good, "relive._native.Tree: levels of wrong lengths");
            tree_.groups[l] = expected / FAN_OUT;
            expected = (tree_.groups[l] + FAN_OUT - 1) / FAN_OUT * FAN_OUT;
        }
        require(tree_.groups[levels - 1] == 1, "relive._native.Tree: levels of wrong lengths");
        require(sound_padding(tree_), "relive._native.Tree: sums of groups that do not exist");
    }

    nb::object get(In<std::int64_t> indices) const {
        check(indices);
        Out<double> values(indices.size);
        leaves(tree_, indices.data, indices.size, values.data);
        return values.array;
    }

    void set(In<std::int64_t> indices, In<double> values) {
        check(indices);
        require(values.size == indices.size, "relive._native.Tree.set: lengths differ");
        require(all_priorities(values.data, values.size), NO_LEAF);
        write({nullptr, 0, indices.data, indices.size, values.data, 1});
    }

    void fill_zero_and_set(In<std::int64_t> removed, In<std::int64_t> added, double value) {
        check(removed);
        check(added);
        require(all_priorities(&value, 1), NO_LEAF);
        write({removed.data, removed.size, added.data, added.size, &value, 0});
    }

    nb::object find(In<double> prefix) const {
        require(all_numbers(prefix.data, prefix.size), "relive._native.Tree.find: a prefix is NaN");
        Out<std::int64_t> index(prefix.size);
        Out<double> value(prefix.size);
        run(prefix.size, [&] { chosen().find(tree_, prefix.data, prefix.size, index.data, value.data); });
        return plan(plans().drawn, index.array, value.array);
    }

    nb::object draw(In<double> u, bool stratified) const {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        run(u.size, [&] { chosen().draw(tree_, u.data, u.size, stratified, index.data, value.data); });
        return plan(plans().drawn, index.array, value.array);
    }

    nb::object draw_distinct(In<double> u) {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        require(double(u.size) <= tree_.state[2], "relive._native.Tree.draw_distinct: more than there are");
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        Scratch scratch(u.size);
        run(u.size, [&] { chosen().draw_distinct(tree_, u.data, u.size, index.data, value.data, scratch.data()); });
        return plan(plans().drawn, index.array, value.array);
    }

    // A draw and the weights of what was drawn, (values / reference) ** -beta. `scale` says what the reference is: the
    // smallest value of the batch (0), of the tree (1), or the mean of `items` leaves (2).
    nb::object sample(In<double> u, bool stratified, bool replacement, int scale, double items, double beta) {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        require(u.size > 0 && scale >= 0 && scale <= 2 && items > 0, "relive._native.Tree.sample: nothing to draw");
        require(replacement || double(u.size) <= tree_.state[2], "relive._native.Tree.sample: more than there are");
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        Out<float> weight(u.size);
        Scratch scratch(replacement ? 0 : u.size);
        run(u.size, [&] {
            const Kernels& kernels = chosen();
            if (replacement)
                kernels.draw(tree_, u.data, u.size, stratified, index.data, value.data);
            else
                kernels.draw_distinct(tree_, u.data, u.size, index.data, value.data, scratch.data());
            const double reference = scale == 0   ? kernels.smallest(value.data, u.size)
                                     : scale == 1 ? tree_.state[1]
                                                  : tree_.state[0] / items;
            kernels.weights(value.data, u.size, reference, beta, weight.data);
        });
        return plan(plans().sampled, index.array, value.array, weight.array);
    }

    // `refresh`, `locate` and `update` in one, of ids that all are drawable and TD errors that are plain floats, one
    // each. False, and no priority has changed, where anything needs a closer look.
    bool try_update(const PyRing& ring, InOut<std::int64_t, 2> seen, nb::handle ids, nb::handle td_error,
                    double initial, double eps, double alpha) {
        require_priority(initial);
        require_priority(eps);
        In<std::int64_t> which;
        if (!which.take(ids)) return false;
        const std::int64_t n = which.size;
        const bool wide = is_array<double, 0>(td_error), narrow = !wide && is_array<float, 0>(td_error);
        if (!wide && !narrow) return false;
        const int axes = PyArray_NDIM(array(td_error));
        if (PyArray_SIZE(array(td_error)) != n || axes < 1 || axes > 2 || PyArray_DIM(array(td_error), 0) != n)
            return false;
        slots_.resize(size_t(n));
        states_.resize(size_t(n));
        bool all = true;
        run(n, [&] { all = ring.ring.locate(which.data, n, slots_.data(), states_.data()); });
        if (!all) return false;
        const auto* errors = static_cast<const double*>(wide ? PyArray_DATA(array(td_error)) : nullptr);
        if (narrow) {
            const auto* given = static_cast<const float*>(PyArray_DATA(array(td_error)));
            errors_.assign(given, given + n);
            errors = errors_.data();
        }
        refresh(ring, seen, initial, alpha);
        return priorities_.update(tree_, slots_.data(), errors, nullptr, n, eps, alpha);
    }

    int64_t refresh(const PyRing& ring, InOut<std::int64_t, 2> seen, double initial, double alpha) {
        require_priority(initial);
        require(ring.ring.capacity() <= tree_.groups[0] * FAN_OUT, "relive._native.Tree.refresh: a larger ring");
        return priorities_.refresh(tree_, ring.ring, seen_of(ring, seen), initial, alpha);
    }

    bool update(In<std::int64_t> slots, In<double> td_error, std::optional<In<bool>> keep, double eps, double alpha) {
        check(slots);
        require_priority(eps);
        require(td_error.size == slots.size && (!keep || keep->size == slots.size),
                "relive._native.Tree.update: lengths differ");
        const auto* kept = keep ? reinterpret_cast<const std::uint8_t*>(keep->data) : nullptr;
        return priorities_.update(tree_, slots.data, td_error.data, kept, slots.size, eps, alpha);
    }

private:
    static constexpr const char* NO_LEAF = "relive._native.Tree: a leaf that is negative or not finite";
    Tree tree_;
    Priorities priorities_;
    std::vector<std::int64_t> slots_;  // of the last `try_update`, kept for the next one
    std::vector<std::uint8_t> states_;
    std::vector<double> errors_;
    nb::object arrays_;  // keeps them alive

    static InOut<double> level(nb::handle array) {
        return taken<InOut<double>>(array, "relive._native.Tree: a level is not the writable array it has to be");
    }

    void check(const In<std::int64_t>& indices) const {
        within(indices.data, indices.size, tree_.groups[0] * FAN_OUT, "relive._native.Tree: no such leaf");
    }

    void write(const Writes& writes) {
        const std::int64_t count = writes.removed_count + writes.added_count;
        Scratch scratch(count);
        run(count, [&] { chosen().write(tree_, writes, scratch.data()); });
    }
};

// The queue over arrays of int32 or int64, as the capacity asks for.
class PyQueue {
public:
    PyQueue(const PyRing& ring, nb::object places, nb::object firsts, InOut<std::int64_t, 2> ends,
            InOut<std::int64_t, 2> seen)
        : ring_(ring),
          narrow_(is_array<std::int32_t, 2>(places)),
          arrays_(nb::make_tuple(places, firsts, ends.object, seen.object)) {
        require(ends.shape[0] == ring_.ring.lanes && ends.shape[1] == 4,
                "relive._native.Queue: `ends` is not `[L, 4]`");
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
        require(u.size <= size, "relive._native.Queue.draw_distinct: more than there are");
        return drawn(
            u, [&](const auto& queue, int64_t* slots) { queue.draw_distinct(ring_.ring, u.data, u.size, slots); });
    }

    nb::object draw_episodes(In<double> u) const {
        bool follows = false;
        visit([&](const auto& queue) { follows = queue.firsts; });
        require(follows, "relive._native.Queue.draw_episodes: episodes are not followed");
        return drawn(
            u, [&](const auto& queue, int64_t* slots) { queue.draw_episodes(ring_.ring, u.data, u.size, slots); });
    }

private:
    static constexpr const char* WRONG = "relive._native.Queue: arrays that no queue has";
    const PyRing& ring_;
    bool narrow_;
    Queue<std::int32_t> narrow_queue_;
    Queue<std::int64_t> wide_queue_;
    nb::object arrays_;  // keeps them alive

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
        visit(
            [&](const auto& queue) { require(u.size == 0 || queue.size() > 0, "relive._native.Queue: it is empty"); });
        Out<std::int64_t> slots(u.size);
        run(u.size, [&] { visit([&](const auto& queue) { draw(queue, slots.data); }); });
        return slots.array;
    }
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

double smallest(In<double> values) {
    require(values.size > 0, "relive._native.smallest: no value");
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
    nb::class_<SumTree>(m, "Tree")
        .def(nb::init<nb::list, nb::list, InOut<double>>(), nb::arg("sums"), nb::arg("mins"), nb::arg("state"))
        .def("get", &SumTree::get, nb::arg("indices"))
        .def("set", &SumTree::set, nb::arg("indices"), nb::arg("values"))
        .def("fill_zero_and_set", &SumTree::fill_zero_and_set, nb::arg("removed"), nb::arg("added"), nb::arg("value"))
        .def("find", &SumTree::find, nb::arg("prefix"))
        .def("draw", &SumTree::draw, nb::arg("u"), nb::arg("stratified"))
        .def("draw_distinct", &SumTree::draw_distinct, nb::arg("u"))
        .def("sample", &SumTree::sample, nb::arg("u"), nb::arg("stratified"), nb::arg("replacement"), nb::arg("scale"),
             nb::arg("items"), nb::arg("beta"))
        .def("try_update", &SumTree::try_update, nb::arg("ring"), nb::arg("seen"), nb::arg("ids").none(),
             nb::arg("td_error").none(), nb::arg("initial"), nb::arg("eps"), nb::arg("alpha"))
        .def("refresh", &SumTree::refresh, nb::arg("ring"), nb::arg("seen"), nb::arg("initial"), nb::arg("alpha"))
        .def("update", &SumTree::update, nb::arg("slots"), nb::arg("td_error"), nb::arg("keep").none(), nb::arg("eps"),
             nb::arg("alpha"));
    nb::class_<PyQueue>(m, "Queue")
        .def(nb::init<const PyRing&, nb::object, nb::object, InOut<std::int64_t, 2>, InOut<std::int64_t, 2>>(),
             nb::arg("ring"), nb::arg("places"), nb::arg("firsts").none(), nb::arg("ends"), nb::arg("seen"),
             nb::keep_alive<1, 2>())
        .def("refresh", &PyQueue::refresh)
        .def("draw", &PyQueue::draw, nb::arg("u"))
        .def("draw_distinct", &PyQueue::draw_distinct, nb::arg("u"))
        .def("draw_episodes", &PyQueue::draw_episodes, nb::arg("u"));
}
