// Transitions of which a share gets another goal, as the native `sample` expands them.
#include "bind_gather.hpp"
#include "draw.hpp"

namespace relive {
namespace {

class GoalItems : public Expansion {
public:
    GoalItems(nb::object gather, nb::object ring, nb::object item, nb::list keys, double ratio, int64_t n_step,
              int64_t strategy, nb::object outcomes)
        : gather_(nb::cast<const PyGather&>(gather)),
          owner_(nb::cast<const PyRing&>(ring)),
          item_(nb::cast<Expansion&>(item)),
          ratio_(ratio),
          n_step_(n_step),
          strategy_(strategy),
          outcomes_(std::move(outcomes)),
          held_(nb::make_tuple(gather, ring, item)) {
        require(PyCallable_Check(outcomes_.ptr()) && keys.size() == 3,
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
            written_.push_back({size_t(found - fields.begin()), size_t(found->row), dtype->type_num});
        }
    }

    void lay_out(Layout& layout) override { item_.lay_out(layout); }
    std::int64_t rows() const override { return item_.rows(); }
    std::int64_t numbers() const override { return 2; }
    std::int64_t scratch() const override { return numbers() + item_.scratch(); }
    int traverse(visitproc visit, void* arg) const override {
        Py_VISIT(outcomes_.ptr());
        return 0;
    }

    void expand(const std::int64_t* slots, std::int64_t n, char* const* to, std::int64_t* scratch) override {
        const npy_intp shape[2] = {2, npy_intp(n)};
        const In<double, 2> numbers{reinterpret_cast<const double*>(scratch), 2 * n, shape, 2};
        // First, since the item may copy large batches last of all, while other threads write.
        const nb::object plan =
            gather_.relabelled(owner_, {slots, n, shape + 1, 1}, numbers, ratio_, n_step_, strategy_);
        const nb::object which = plan[0], outcomes = outcomes_(plan);
        std::vector<RowArray> values;
        for (const Written& field : written_) {
            values.emplace_back(outcomes[values.size()]);
            require(values.back().rows == PyArray_SIZE(array(which)) && values.back().column.row == field.row &&
                        values.back().type == field.type,
                    "relive._ring._native.Gather.goals: outcomes of another shape");
        }
        item_.expand(slots, n, to, scratch + 2 * n);
        const auto* items = static_cast<const std::int64_t*>(PyArray_DATA(array(which)));
        for (size_t f = 0; f < written_.size(); ++f)
            for (std::int64_t k = 0; k < values[f].rows; ++k)
                copy_row(to[written_[f].field] + size_t(items[k]) * written_[f].row, values[f].column.at(k),
                         written_[f].row);
    }

private:
    struct Written {
        size_t field, row;
        int type;
    };
    const PyGather& gather_;
    const PyRing& owner_;
    Expansion& item_;
    double ratio_;
    std::int64_t n_step_, strategy_;
    std::vector<Written> written_;
    nb::object outcomes_, held_;
};

}  // namespace

nb::object goals_of_single(nb::object gather, nb::object ring, nb::object item, nb::list keys, double ratio,
                           int64_t n_step, int64_t strategy, nb::object outcomes) {
    Expansion* const made = new GoalItems(std::move(gather), std::move(ring), std::move(item), std::move(keys), ratio,
                                          n_step, strategy, std::move(outcomes));
    return nb::cast(made, nb::rv_policy::take_ownership);
}

}  // namespace relive
