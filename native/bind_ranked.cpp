// The order of priorities, bound to arrays that Python owns.
#include <algorithm>

#include "bind_tree.hpp"
#include "ranks.hpp"

namespace relive {
namespace {

constexpr std::int64_t MOST_SLOTS = std::int64_t(1) << 31;

class PyRanks {
public:
    PyRanks(nb::handle_t<SumTree> tree, InOut<double> order, InOut<double> raw, InOut<std::int64_t> stamps,
            InOut<double> state, double alpha)
        : tree_(nb::cast<SumTree&>(tree)),
          held_(nb::make_tuple(tree, order.object, raw.object, stamps.object, state.object)) {
        const Tree& over = tree_.tree();
        require(raw.size > 0 && raw.size < MOST_SLOTS && stamps.size == raw.size && state.size == RANKS_STATE &&
                    order.size == order_size(raw.size) && over.groups[0] * FAN_OUT >= raw.size,
                "relive._ring._native.Ranks: arrays of wrong lengths");
        require(all_priorities(state.data, RANKS_STATE) && state.data[CLOCK] < double(LIMIT) && alpha >= 0.0 &&
                    std::isfinite(alpha),
                "relive._ring._native.Ranks: a state that no ranking has");
        ranks_.tree = &tree_.tree();
        ranks_.alpha = alpha;
        ranks_.capacity = raw.size;
        ranks_.order = order_in(order.data, raw.size);
        ranks_.raw = raw.data;
        ranks_.stamps = stamps.data;
        ranks_.state = state.data;
        require(is_empty(ranks_.order, raw.size) && over.state[0] == 0.0 && over.state[2] == 0.0,
                "relive._ring._native.Ranks: an order or a tree that is not empty");
    }

    void rebuild() {
        require(all_priorities(ranks_.raw, ranks_.capacity),
                "relive._ring._native.Ranks: a priority that is not finite");
        require(std::all_of(ranks_.stamps, ranks_.stamps + ranks_.capacity, [](auto stamp) { return stamp < LIMIT; }),
                "relive._ring._native.Ranks: a time that no ranking has");
        ranks_.rebuild();
    }

    std::int64_t refresh(const PyRing& ring, InOut<std::int64_t, 2> seen, double initial) {
        require_priority(initial);
        require(ring.ring.slots() <= ranks_.capacity, "relive._ring._native.Ranks.refresh: a larger ring");
        return ranks_.refresh(ring.ring, seen_of(ring, seen), initial);
    }

    bool update(In<std::int64_t> slots, In<double> td_error, std::optional<In<bool>> keep, double eps) {
        within(slots.data, slots.size, ranks_.capacity, "relive._ring._native.Ranks: no such slot");
        require_priority(eps);
        require(td_error.size == slots.size && (!keep || keep->size == slots.size),
                "relive._ring._native.Ranks.update: lengths differ");
        const auto* kept = keep ? reinterpret_cast<const std::uint8_t*>(keep->data) : nullptr;
        return ranks_.update(slots.data, td_error.data, kept, slots.size, eps);
    }

    nb::object draw(In<double> u, bool stratified) { return named(drawn(u, stratified, true)); }
    nb::object draw_distinct(In<double> u) { return named(drawn(u, false, false)); }

    // As the tree's own, of slots instead of ranks.
    nb::object sample(In<double> u, bool stratified, bool replacement, int scale, double items, double beta) {
        require(u.size > 0 && scale >= 0 && scale <= 2 && items > 0,
                "relive._ring._native.Ranks.sample: nothing to draw");
        const Found found = drawn(u, stratified, replacement);
        Out<float> weight(u.size);
        const double reference = tree_.reference(scale, items, found.values.data, u.size);
        run(u.size, [&] { chosen().weights(found.values.data, u.size, reference, beta, weight.data); });
        return plan(plans().sampled, found.slots.array, found.values.array, weight.array);
    }

    // Draw slots; without replacement `scratch` has room for n times the tree's levels.
    void choose(const double* u, std::int64_t n, bool stratified, bool replacement, std::int64_t* slots, double* values,
                double* scratch) {
        ranks_.fit();
        tree_.choose(u, n, stratified, replacement, slots, values, scratch);
        chosen().ranked(ranks_.order, slots, n, slots);
    }

    SumTree& tree() { return tree_; }

private:
    SumTree& tree_;
    Ranks ranks_;
    nb::object held_;  // the tree and the arrays

    struct Found {
        Out<std::int64_t> slots;
        Out<double> values;
    };

    static nb::object named(const Found& found) { return plan(plans().drawn, found.slots.array, found.values.array); }

    Found drawn(const In<double>& u, bool stratified, bool replacement) {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        require(u.size <= (replacement && ranks_.size() ? u.size : ranks_.size()),
                "relive._ring._native.Ranks: more than there are");
        ranks_.fit();
        Found found{Out<std::int64_t>(u.size), Out<double>(u.size)};
        Tree& tree = tree_.tree();
        Scratch<double> scratch(replacement ? 0 : u.size * tree.levels);
        std::int64_t* slots = found.slots.data;
        run(u.size, [&] {
            if (replacement)
                chosen().draw(tree, u.data, u.size, stratified, slots, found.values.data);
            else
                chosen().draw_distinct(tree, u.data, u.size, slots, found.values.data, scratch.data());
        });
        within(slots, u.size, ranks_.size(), "relive._ring._native.Ranks: a tree over other ranks");
        run(u.size, [&] { chosen().ranked(ranks_.order, slots, u.size, slots); });
        return found;
    }
};

nb::object chooser_of_ranks(nb::handle_t<PyRanks> ranks, nb::handle_t<PyRing> ring, InOut<std::int64_t, 2> seen,
                            InOut<double> draws, nb::object settings) {
    auto& order = nb::cast<PyRanks&>(ranks);
    const auto& owner = nb::cast<const PyRing&>(ring);
    const auto initial = nb::cast<double>(settings.attr("initial"));
    seen_of(owner, seen);  // of its shape
    Chooser* const made = new Proportional(
        order, order.tree(), Proportions::of(settings, draws),
        [&order, &owner, seen, initial] { return order.refresh(owner, seen, initial); },
        [](const Updates&) { return int64_t(-1); }, nb::make_tuple(ranks, ring, seen.object, draws.object));
    return nb::cast(made, nb::rv_policy::take_ownership);
}

}  // namespace
}  // namespace relive

void bind_ranked(nanobind::module_& m) {
    using namespace relive;
    m.def(
        "order_size",
        [](std::int64_t capacity) {
            require(capacity > 0 && capacity < MOST_SLOTS, "relive._ring._native.order_size: no such capacity");
            return order_size(capacity);
        },
        nb::arg("capacity"));
    nb::class_<PyRanks>(m, "Ranks")
        .def(
            nb::init<nb::handle_t<SumTree>, InOut<double>, InOut<double>, InOut<std::int64_t>, InOut<double>, double>(),
            nb::arg("tree"), nb::arg("order"), nb::arg("raw"), nb::arg("stamps"), nb::arg("state"), nb::arg("alpha"))
        .def("rebuild", &PyRanks::rebuild)
        .def("refresh", &PyRanks::refresh, nb::arg("ring"), nb::arg("seen"), nb::arg("initial"))
        .def("update", &PyRanks::update, nb::arg("slots"), nb::arg("td_error"), nb::arg("keep").none(), nb::arg("eps"))
        .def("draw", &PyRanks::draw, nb::arg("u"), nb::arg("stratified"))
        .def("draw_distinct", &PyRanks::draw_distinct, nb::arg("u"))
        .def("sample", &PyRanks::sample, nb::arg("u"), nb::arg("stratified"), nb::arg("replacement"), nb::arg("scale"),
             nb::arg("items"), nb::arg("beta"))
        .def("chooser", &chooser_of_ranks, nb::arg("ring"), nb::arg("seen"), nb::arg("draws"), nb::arg("settings"));
}
