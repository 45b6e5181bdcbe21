// Transitions of which a share gets another goal, as the native `sample` expands them.
#include "bind_gather.hpp"
#include "draw.hpp"

namespace relive {
namespace {

class GoalItems : public Expansion {
public:
    GoalItems(nb::object gather, nb::object ring, nb::object item, nb::list keys, double ratio, int64_t n_step,
              int64_t strategy, nb::object outcomes, nb::object reward)
        : gather_(nb::cast<const PyGather&>(gather)),
          owner_(nb::cast<const PyRing&>(ring)),
          item_(nb::cast<Expansion&>(item)),
          ratio_(ratio),
          n_step_(n_step),
          strategy_(strategy),
          outcomes_(std::move(outcomes)),
          reward_(std::move(reward)),
          held_(nb::make_tuple(gather, ring, item)) {
        require(PyCallable_Check(outcomes_.ptr()) && keys.size() == 3 &&
                    (reward_.is_none() || (PyCallable_Check(reward_.ptr()) && n_step == 1 && gather_.size() >= 2)),
                "relive._ring._native.Gather.goals: no outcomes");
        const npy_intp none[2] = {2, 0};
        // Of no items: it checks the rest.
        gather_.relabelled(owner_, {nullptr, 0, none + 1, 1}, {nullptr, 0, none, 2}, ratio, n_step, strategy);
        Layout layout;
        item_.lay_out(layout);
        for (nb::handle wanted : keys) {
            const auto& fields = layout.fields();
            const auto of = [&](const Layout::Field& field) {
                return !field.axis && field.keys.size() && field.keys.equal(wanted);
            };
            const auto found = std::find_if(fields.begin(), fields.end(), of);
            require(found != fields.end() && found->dtype.is_valid() && !found->later,
                    "relive._ring._native.Gather.goals: a field that the item has not");
            auto* dtype = reinterpret_cast<PyArray_Descr*>(found->dtype.ptr());
            const bool one = found->shape.empty();
            written_.push_back({size_t(found - fields.begin()), size_t(found->row), dtype->type_num, one});
        }
        if (reward_.is_none()) return;
        for (size_t f = 0; f < 2; ++f)
            require(gather_.column(f).is(gather_.column(0)) && gather_.row(0) == written_[f].row &&
                        gather_.type(0) == written_[f].type,
                    "relive._ring._native.Gather.goals: goals of another shape");
        numbers_ = gather_.numbers(0) > 1 && gather_.numbers(0) < MANY ? gather_.numbers(0) : 0;
    }

    void lay_out(Layout& layout) override { item_.lay_out(layout); }
    std::int64_t rows() const override { return item_.rows(); }
    std::int64_t numbers() const override { return 2; }
    std::int64_t scratch() const override { return numbers() + item_.scratch() + 1 + PICKS + ANCHOR + 2 * turned(); }
    int traverse(visitproc visit, void* arg) const override {
        Py_VISIT(outcomes_.ptr());
        Py_VISIT(reward_.ptr());
        return 0;
    }

    void expand(const std::int64_t* slots, std::int64_t n, char* const* to, std::int64_t* scratch) override {
        reward_.is_none() ? planned(slots, n, to, scratch) : single(slots, n, to, scratch);
    }

private:
    struct Written {
        size_t field, row;
        int type;
        bool one;  // an item has a single number

        // Write the values of some items.
        void put(char* const* to, const std::int64_t* items, npy_intp n, const Column& values) const {
            char* const out = to[field];
            with_rows_of(row, [&](auto rows) {
                for (npy_intp k = 0; k < n; ++k) rows.copy(out + size_t(items[k]) * row, values.at(k));
            });
        }
    };
    static constexpr std::size_t PICKS = 3;  // lists of rows that columns are read at
    static constexpr std::int64_t ANCHOR = sizeof(Anchor) / 8;
    // Goals of fewer numbers than this are handed over number by number, as `_turned` in relive.items.hindsight says.
    static constexpr npy_intp MANY = 8;

    const PyGather& gather_;
    const PyRing& owner_;
    Expansion& item_;
    double ratio_;
    std::int64_t n_step_, strategy_;
    std::vector<Written> written_;
    nb::object outcomes_, reward_, held_;
    npy_intp numbers_ = 0;  // of a goal that is handed over number by number

    // Room for such a goal.
    std::int64_t turned() const { return numbers_ ? std::int64_t(gather_.row(0) + 7) / 8 : 0; }

    // Copy n goals number by number.
    void turn(char* to, const char* from, npy_intp n) const {
        const std::size_t row = gather_.row(0), size = row / std::size_t(numbers_);
        const auto copied = [&](std::size_t bytes, auto copy) {
            for (std::size_t i = 0; i < row; i += bytes)
                for (npy_intp k = 0; k < n; ++k, to += bytes) copy(to, from + std::size_t(k) * row + i);
        };
        if (size == 4) return copied(4, copy_block<4>);
        if (size == 8) return copied(8, copy_block<8>);
        copied(size, [size](char* out, const char* in) { copy_row(out, in, size); });
    }

    // The extras of the steps, as the function gets them.
    nb::object extras(const std::vector<nb::object>& copies) const {
        nb::list given;
        for (std::size_t c = 2; c < copies.size(); ++c) given.append(copies[c]);
        return outcomes_.attr("extras")(given);
    }

    // Whether rewards can be taken as they are.
    bool usual(nb::handle given, npy_intp n) const {
        return PyArray_CheckExact(given.ptr()) && PyArray_TYPE(array(given)) == written_[2].type && written_[2].one &&
               PyArray_NDIM(array(given)) == 1 && PyArray_SIZE(array(given)) == n && PyArray_ISCARRAY_RO(array(given));
    }

    // What items get, which has to have the form of their field.
    static RowArray checked(nb::handle values, npy_intp n, const Written& field) {
        RowArray rows(values);
        require(rows.rows == n && rows.column.row == field.row && rows.type == field.type,
                "relive._ring._native.Gather.goals: outcomes of another shape");
        return rows;
    }

    void planned(const std::int64_t* slots, std::int64_t n, char* const* to, std::int64_t* scratch) {
        const npy_intp shape[2] = {2, npy_intp(n)};
        const In<double, 2> numbers{reinterpret_cast<const double*>(scratch), 2 * n, shape, 2};
        // First, since the item may copy large batches last of all, while other threads write.
        const nb::object plan =
            gather_.relabelled(owner_, {slots, n, shape + 1, 1}, numbers, ratio_, n_step_, strategy_);
        const nb::object which = plan[0], outcomes = outcomes_(plan);
        const npy_intp made = PyArray_SIZE(array(which));
        std::vector<RowArray> values;
        for (std::size_t f = 0; f < written_.size(); ++f) values.push_back(checked(outcomes[f], made, written_[f]));
        item_.expand(slots, n, to, scratch + 2 * n);
        for (std::size_t f = 0; f < written_.size(); ++f)
            written_[f].put(to, static_cast<const std::int64_t*>(PyArray_DATA(array(which))), made, values[f].column);
    }

    // The same of items of one step, without a plan.
    void single(const std::int64_t* slots, std::int64_t n, char* const* to, std::int64_t* scratch) {
        const Ring& ring = owner_.ring;
        within(slots, n, ring.slots(), "relive._ring._native.sampling: a sampler of another ring");
        const auto* const numbers = reinterpret_cast<const double*>(scratch);
        std::int64_t* const which = scratch + n * (2 + item_.scratch());
        std::int64_t* const rows[PICKS] = {which + n, which + 2 * n, which + 3 * n};
        auto* const anchors = reinterpret_cast<Anchor*>(which + (1 + PICKS) * n);
        char* const own = reinterpret_cast<char*>(anchors + n);
        const bool few = n < WORTH_RELEASING && gather_.small();
        npy_intp made = 0;
        run(n, [&] {
            Relabeller(ring, 1, Strategy(strategy_))
                .relabel(slots, numbers, ratio_, numbers + n, n, anchors, [&](const Anchor& of, const Goal& goal) {
                    which[made] = of.item;
                    rows[0][made] = goal.achieved;
                    rows[1][made] = ring.successor_of(of.at);
                    rows[2][made] = of.at;
                    if (few) gather_.fetch(rows, made);
                    ++made;
                });
        });
        if (!made) return item_.expand(slots, n, to, scratch + 2 * n);
        std::vector<nb::object> copies(gather_.size());
        std::vector<char*> outs(gather_.size());
        for (std::size_t c = 0; c < outs.size(); ++c) {
            const bool turns = numbers_ && c < 2;
            copies[c] = gather_.fresh_out(c, made, turns);
            outs[c] = turns ? own + std::size_t(turned() * n) * 8 * c : PyArray_BYTES(array(copies[c]));
        }
        if (few)
            gather_.copy_fetched(outs.data(), rows, 0, made);
        else
            gather_.copy_to(outs.data(), rows, made, [](std::int64_t items, auto&& kernel) { run(items, kernel); });
        for (std::size_t c = 0; numbers_ && c < 2; ++c) turn(PyArray_BYTES(array(copies[c])), outs[c], made);
        const nb::object info = copies.size() > 2 ? extras(copies) : nb::dict();
        PyObject* const arguments[] = {copies[1].ptr(), copies[0].ptr(), info.ptr()};
        nb::object given = nb::steal(PyObject_Vectorcall(reward_.ptr(), arguments, 3, nullptr));
        if (!given.is_valid()) nb::raise_python_error();
        if (!usual(given, made)) given = outcomes_.attr("rewards")(given, made);
        const RowArray values = checked(given, made, written_[2]);
        item_.expand(slots, n, to, scratch + 2 * n);
        for (std::size_t f = 0; f < 2; ++f)
            written_[f].put(to, which, made, {outs[0], written_[f].row, written_[f].row});
        written_[2].put(to, which, made, values.column);
    }
};

}  // namespace

nb::object goals_of_single(nb::object gather, nb::object ring, nb::object item, nb::list keys, double ratio,
                           int64_t n_step, int64_t strategy, nb::object outcomes, nb::object reward) {
    Expansion* const made = new GoalItems(std::move(gather), std::move(ring), std::move(item), std::move(keys), ratio,
                                          n_step, strategy, std::move(outcomes), std::move(reward));
    return nb::cast(made, nb::rv_policy::take_ownership);
}

}  // namespace relive
