// The sum tree, bound to arrays that Python owns.
#pragma once

#include <memory>

#include "bind_ring.hpp"
#include "checks.hpp"
#include "draw.hpp"
#include "priorities.hpp"
#include "updates.hpp"

namespace relive {

// Room for a list of numbers: on the stack while it is short.
template <typename T>
class Scratch {
public:
    explicit Scratch(std::int64_t size) {
        if (size > FEW) many_.reset(new T[static_cast<std::size_t>(size)]);
    }
    T* data() { return many_ ? many_.get() : few_; }

private:
    static constexpr std::int64_t FEW = 512;
    T few_[FEW];
    std::unique_ptr<T[]> many_;
};

inline Seen* seen_of(const PyRing& owner, const InOut<int64_t, 2>& seen) {
    require(seen.shape[0] == owner.ring.lanes && seen.shape[1] == 3, "relive._ring._native: `seen` is not `[L, 3]`");
    return reinterpret_cast<Seen*>(seen.data);
}

constexpr const char* NO_UNIFORM = "relive._ring._native: a uniform outside [0, 1)";

inline void require_priority(double value) {
    require(all_priorities(&value, 1), "relive._ring._native: a priority that is negative or not finite");
}

class SumTree {
public:
    SumTree(nb::list sums, nb::list mins, InOut<double> state)
        : arrays_(nb::make_tuple(nb::tuple(sums), nb::tuple(mins), state.object)) {
        const std::size_t levels = sums.size();
        require(levels >= 1 && levels <= MAX_LEVELS && mins.size() == levels - 1 && state.size == STATE_SIZE,
                "relive._ring._native.Tree: levels of wrong lengths");
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
            require(good, "relive._ring._native.Tree: levels of wrong lengths");
            tree_.groups[l] = expected / FAN_OUT;
            expected = (tree_.groups[l] + FAN_OUT - 1) / FAN_OUT * FAN_OUT;
        }
        require(tree_.groups[levels - 1] == 1, "relive._ring._native.Tree: levels of wrong lengths");
        require(sound_padding(tree_), "relive._ring._native.Tree: sums of groups that do not exist");
    }

    void keep_raws(nb::object raws) {
        Tree& other = nb::cast<SumTree&>(raws).tree_;
        require(&other != &tree_ && other.groups[0] == tree_.groups[0],
                "relive._ring._native.Tree.keep_raws: a tree of another length");
        priorities_.raws = &other;
        raws_ = std::move(raws);
    }

    nb::object get(In<std::int64_t> indices) const {
        check(indices);
        Out<double> values(indices.size);
        leaves(tree_, indices.data, indices.size, values.data);
        return values.array;
    }

    void set(In<std::int64_t> indices, In<double> values) {
        check(indices);
        require(values.size == indices.size, "relive._ring._native.Tree.set: lengths differ");
        require(all_priorities(values.data, values.size), NO_LEAF);
        write({nullptr, 0, indices.data, indices.size, values.data, 1});
    }

    void fill_zero_and_set(In<std::int64_t> removed, In<std::int64_t> added, double value) {
        check(removed);
        check(added);
        require(all_priorities(&value, 1), NO_LEAF);
        write({removed.data, removed.size, added.data, added.size, &value, 0});
    }

    void restore() {
        const std::int64_t n = tree_.groups[0] * FAN_OUT;
        bool good = true;
        for (std::int64_t i = 0; i < n; ++i) good &= std::isfinite(tree_.sums[0][i]);
        require(good, NO_LEAF);
        run(n, [&] { chosen().restore(tree_); });
    }

    nb::object find(In<double> prefix) const {
        require(all_numbers(prefix.data, prefix.size), "relive._ring._native.Tree.find: a prefix is NaN");
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
        require(double(u.size) <= tree_.state[2], "relive._ring._native.Tree.draw_distinct: more than there are");
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        Scratch<double> scratch(u.size * tree_.levels);
        run(u.size, [&] { chosen().draw_distinct(tree_, u.data, u.size, index.data, value.data, scratch.data()); });
        return plan(plans().drawn, index.array, value.array);
    }

    // A draw and the weights of what was drawn, (values / reference) ** -beta. `scale` says what the reference is: the
    // smallest value of the batch (0), of the tree (1), or the mean of `items` leaves (2).
    nb::object sample(In<double> u, bool stratified, bool replacement, int scale, double items, double beta) {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        require(u.size > 0 && scale >= 0 && scale <= 2 && items > 0,
                "relive._ring._native.Tree.sample: nothing to draw");
        require(replacement || double(u.size) <= tree_.state[2],
                "relive._ring._native.Tree.sample: more than there are");
        Out<std::int64_t> index(u.size);
        Out<double> value(u.size);
        Out<float> weight(u.size);
        Scratch<double> scratch(replacement ? 0 : u.size * tree_.levels);
        run(u.size, [&] {
            choose(u.data, u.size, stratified, replacement, index.data, value.data, scratch.data());
            chosen().weights(value.data, u.size, reference(scale, items, value.data, u.size), beta, weight.data);
        });
        return plan(plans().sampled, index.array, value.array, weight.array);
    }

    // `update_items` of plain arrays and items that all can be drawn; false, and no change, for all else.
    bool try_update(const PyRing& ring, InOut<std::int64_t, 2> seen, nb::handle ids, nb::handle td_error,
                    double initial, double eps, double alpha) {
        require_priority(initial);
        require_priority(eps);
        Updates updates;
        return take_plain(ids, td_error, updates) &&
               update_items(ring, seen, updates, false, initial, eps, alpha) == updates.n;
    }

    // `refresh`, `locate` and `update` in one; how many priorities were set. -1, and none has changed, where an id was
    // never issued or a TD error is not finite, and, unless `some` may be left out, where an item cannot be drawn, or
    // was written by another process since the refresh: the sampler has another row at its slot.
    std::int64_t update_items(const PyRing& ring, InOut<std::int64_t, 2> seen, const Updates& updates, bool some,
                              double initial, double eps, double alpha) {
        // First what changed: a slot must not be given the priority of a row that is gone from it by then.
        refresh(ring, seen, initial, alpha);
        const std::int64_t n = updates.n;
        slots_.resize(size_t(n));
        states_.resize(size_t(n));
        bool all = !ring.ring.touched.shared && have_leaves(ring.ring, updates.ids, n);
        const auto* taken_in = reinterpret_cast<const Seen*>(seen.data);
        if (!all) {
            run(n, [&] { all = ring.ring.locate(updates.ids, n, slots_.data(), states_.data()); });
            if (all && (!some || ring.ring.touched.shared)) all = all_seen(ring.ring, taken_in, updates.ids, n);
        }
        if (!all && !some) return -1;
        std::int64_t kept = n;
        if (!all) {
            bool issued = true;
            for (std::int64_t i = 0; i < n; ++i) {
                std::uint8_t& state = states_[size_t(i)];
                issued &= state != NEVER_ISSUED;
                state = state == DRAWABLE && all_seen(ring.ring, taken_in, updates.ids + i, 1);
                kept -= !state;
            }
            if (!issued) return -1;
        }
        const double* errors = updates.wide;
        if (updates.narrow) {
            errors_.assign(updates.narrow, updates.narrow + n);
            errors = errors_.data();
        }
        const bool good =
            priorities_.update(tree_, slots_.data(), errors, all ? nullptr : states_.data(), n, eps, alpha);
        return good ? kept : -1;
    }

    int64_t refresh(const PyRing& ring, InOut<std::int64_t, 2> seen, double initial, double alpha) {
        require_priority(initial);
        require(ring.ring.slots() <= tree_.groups[0] * FAN_OUT, "relive._ring._native.Tree.refresh: a larger ring");
        return priorities_.refresh(tree_, ring.ring, seen_of(ring, seen), initial, alpha);
    }

    bool update(In<std::int64_t> slots, In<double> td_error, std::optional<In<bool>> keep, double eps, double alpha) {
        check(slots);
        require_priority(eps);
        require(td_error.size == slots.size && (!keep || keep->size == slots.size),
                "relive._ring._native.Tree.update: lengths differ");
        const auto* kept = keep ? reinterpret_cast<const std::uint8_t*>(keep->data) : nullptr;
        return priorities_.update(tree_, slots.data, td_error.data, kept, slots.size, eps, alpha);
    }

    // Draw leaves; without replacement `scratch` has room for n times the tree's levels.
    void choose(const double* u, std::int64_t n, bool stratified, bool replacement, std::int64_t* index, double* value,
                double* scratch) {
        if (replacement)
            chosen().draw(tree_, u, n, stratified, index, value);
        else
            chosen().draw_distinct(tree_, u, n, index, value, scratch);
    }

    double reference(int scale, double items, const double* values, std::int64_t n) const {
        return scale == 0 ? chosen().smallest(values, n) : scale == 1 ? tree_.state[1] : tree_.state[0] / items;
    }
    Tree& tree() { return tree_; }

private:
    static constexpr const char* NO_LEAF = "relive._ring._native.Tree: a leaf that is negative or not finite";
    Tree tree_;
    Priorities priorities_;
    std::vector<std::int64_t> slots_;  // of the last `try_update`, kept for the next one
    std::vector<std::uint8_t> states_;
    std::vector<double> errors_;
    nb::object arrays_, raws_;  // keep them alive

    // Whether each of the ids is of an item with a positive leaf, whose slot is set. What the update will write is on
    // its way then; the marks, which are other lines of memory, nobody needs.
    bool have_leaves(const Ring& ring, const std::int64_t* ids, std::int64_t n) {
        if (!ring.within_items(ids, n, slots_.data())) return false;
        for (const std::int64_t slot : slots_) fetch_to_write(tree_, slot);
        bool all = true;
        for (const std::int64_t slot : slots_) all &= tree_.sums[0][slot] > 0.0;
        return all;
    }

    static InOut<double> level(nb::handle array) {
        return taken<InOut<double>>(array, "relive._ring._native.Tree: a level is not the writable array it has to be");
    }

    void check(const In<std::int64_t>& indices) const {
        within(indices.data, indices.size, tree_.groups[0] * FAN_OUT, "relive._ring._native.Tree: no such leaf");
    }

    void write(const Writes& writes) {
        const std::int64_t count = writes.removed_count + writes.added_count;
        Scratch<std::int64_t> scratch(count);
        run(count, [&] { chosen().write(tree_, writes, scratch.data()); });
    }
};

inline double number_of(nb::handle of, const char* name) { return nb::cast<double>(of.attr(name)); }

// The weights that a sampler's settings ask for: what they are divided by, and the exponent of every draw.
struct Weighing {
    int scale;                // as of `SumTree::sample`
    double start, end, over;  // of beta: from one to the other in so many draws; 0: it stays
    double* draws;            // how many there were, and the last one's beta

    static Weighing of(nb::handle settings, InOut<double> draws) {
        require(draws.size == 2, "relive._ring._native: `draws` is not `[2]`");
        const nb::object beta = settings.attr("beta"), weights = settings.attr("weights");
        const bool moves = !PyFloat_Check(beta.ptr());
        const auto of_beta = [&](const char* name) { return moves ? number_of(beta, name) : nb::cast<double>(beta); };
        const int scale = weights.equal(nb::str("batch")) ? 0 : weights.equal(nb::str("buffer")) ? 1 : 2;
        return {scale, of_beta("start"), of_beta("end"), moves ? number_of(beta, "over") : 0.0, draws.data};
    }

    // Note a draw; its exponent, as `Anneal.at`, unless one is given.
    double next(const double* beta) {
        const double own = draws[0] >= over ? end : start + (end - start) * (draws[0] / over);
        draws[0] += 1.0;
        return draws[1] = beta ? *beta : own;
    }
};

// The settings of a sampler that draws in proportion to priorities; see `Prioritized` in relive.samplers.
struct Proportions {
    bool stratified, replacement;
    double initial, eps, alpha;

    static Proportions of(nb::handle settings) {
        return {nb::cast<bool>(settings.attr("stratified")), nb::cast<bool>(settings.attr("replacement")),
                number_of(settings, "initial"), number_of(settings, "eps"), number_of(settings, "alpha")};
    }
};

// Draws slots in proportion to the leaves of a tree that follows a ring.
class Proportional : public Chooser {
public:
    Proportional(nb::handle_t<SumTree> tree, nb::handle_t<PyRing> ring, InOut<std::int64_t, 2> seen,
                 InOut<double> draws, nb::object settings)
        : tree_(nb::cast<SumTree&>(tree)),
          ring_(nb::cast<const PyRing&>(ring)),
          seen_(seen),
          of_(Proportions::of(settings)),
          weighing_(Weighing::of(settings, draws)),
          held_(nb::make_tuple(tree, ring, seen.object, draws.object)) {
        seen_of(ring_, seen_);  // of its shape
    }

    int64_t refresh() override { return tree_.refresh(ring_, seen_, of_.initial, of_.alpha); }
    bool replacement() const override { return of_.replacement; }
    bool prioritizes() const override { return true; }
    void prepare(int64_t n) override {
        if (!of_.replacement) scratch_.resize(size_t(n * tree_.tree().levels));
    }
    double begin(const double* beta) override { return weighing_.next(beta); }
    void choose(const double* u, int64_t n, double beta, int64_t* slots, double* values, float* weights) override {
        tree_.choose(u, n, of_.stratified, of_.replacement, slots, values, scratch_.data());
        if (!weights) return;
        const int scale = weighing_.scale;
        const double items = scale == 2 ? tree_.tree().state[ITEMS] : 1.0;
        chosen().weights(values, n, tree_.reference(scale, items, values, n), beta, weights);
    }
    void probability(const int64_t* slots, int64_t n, double* result) override {
        leaves(tree_.tree(), slots, n, result);
        probable(result, n);
    }
    bool probable(double* values, int64_t n) override {
        for (int64_t i = 0; i < n; ++i) values[i] /= tree_.tree().state[0];
        return true;
    }
    bool leaves_masses() const override { return weighing_.scale == 0; }
    int64_t update(const Updates& updates) override {
        return tree_.update_items(ring_, seen_, updates, true, of_.initial, of_.eps, of_.alpha);
    }

private:
    SumTree& tree_;
    const PyRing& ring_;
    InOut<std::int64_t, 2> seen_;
    Proportions of_;
    Weighing weighing_;
    nb::object held_;  // what is referred to
    std::vector<double> scratch_;
};

}  // namespace relive
