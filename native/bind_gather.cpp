// Transitions as the native `sample` expands them, and the bindings of what copies rows.
#include "bind_gather.hpp"

#include "chunks.hpp"
#include "draw.hpp"

namespace relive {
namespace {

// A column of which observations show several rows, the frames; its entries in a batch are the observations and their
// successors.
struct Stacked {
    const PyGather* gather;
    nb::tuple keys[2];
    std::int64_t frames;
    bool repeat, behind;
    std::size_t kind;  // columns of one kind show the same rows
};
struct FrameKind {
    std::int64_t frames;
    bool repeat;
};

// A column that is shown at every step of a window.
struct Chunk {
    nb::tuple keys;
    nb::object column;
};

// Transitions whose columns are copied as they are, but for stacks, and for rewards that are summed over several steps.
class Transitions : public Expansion {
public:
    Transitions(nb::object gather, nb::object ring, In<float> discounts, nb::list keys, nb::list stacks,
                nb::object reward, In<double> gammas, std::optional<nb::list> chunks)
        : gather_(nb::cast<const PyGather&>(gather)),
          owner_(nb::cast<PyRing&>(ring)),
          discounts_(discounts.data, discounts.data + discounts.size),
          gammas_(gammas.data, gammas.data + gammas.size),
          keys_(keys),
          reward_(std::move(reward)),
          chunked_(chunks.has_value()),
          held_(nb::make_tuple(gather, ring, nb::tuple(stacks))) {
        gather_.check_of(owner_, "relive._ring._native.Gather.transitions: columns of another ring");
        require(keys_.size() == gather_.size() && gammas.size == discounts.size && discounts.size >= 2 &&
                    discounts.size - 1 <= owner_.ring.rows,
                "relive._ring._native.Gather.transitions: no window that a lane holds, or no keys of a column");
        if (!reward_.is_none()) {
            rewards_.emplace(reward_);
            require(rewards_->rows == owner_.ring.zero_row() + 1 &&
                        (rewards_->type == NPY_FLOAT || rewards_->type == NPY_DOUBLE) &&
                        PyArray_ISALIGNED(array(reward_)),
                    "relive._ring._native.Gather.transitions: rewards have to be floats");
        }
        for (nb::handle stack : held_[2]) stacks_.push_back(checked(stack));
        for (nb::handle chunk : chunks ? nb::tuple(*chunks) : nb::tuple()) {
            chunks_.push_back({named(chunk[0]), nb::borrow(chunk[1])});
            columns_.emplace_back(chunks_.back().column);
            require(columns_.back().rows == owner_.ring.zero_row() + 1,
                    "relive._ring._native.Gather.transitions: chunks of another ring");
        }
        for (const RowArray& rows : columns_) runs_.emplace_back(owner_.ring, rows.column, longest());
        Layout layout;
        lay_out(layout);  // whose keys are looked at here
    }

    void lay_out(Layout& layout) override {
        const auto add = [&](nb::tuple keys, nb::handle column, std::int64_t rows = 0) {
            const npy_intp* shape = PyArray_DIMS(array(column));
            std::vector<npy_intp> item(shape + 1, shape + PyArray_NDIM(array(column)));
            if (rows) item.insert(item.begin(), npy_intp(rows));
            return layout.add(std::move(keys), nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(array(column)))),
                              std::move(item));
        };
        std::size_t field = layout.fields().size() + gather_.size();  // others' may come first
        for (std::size_t c = 0; c < gather_.size(); ++c) add(named(keys_[c]), gather_.column(c));
        for (const std::size_t place : {0, 1})
            for (const Stacked& stack : stacks_) add(nb::tuple(), stack.gather->column(place), stack.frames);
        for (const std::size_t place : {0, 1})
            for (const Stacked& stack : stacks_) layout.add_part(stack.keys[place], field++, nb::none(), stack.behind);
        if (rewards_) add(nb::make_tuple(nb::str("reward")), reward_);
        for (const Chunk& chunk : chunks_) add(chunk.keys, chunk.column, longest());
        layout.add("discount", NPY_FLOAT);
        layout.add("terminated", NPY_BOOL);
        layout.add("truncated", NPY_BOOL);
        layout.add("steps", NPY_INT32);
        if (chunked_) layout.add("mask", NPY_BOOL, {npy_intp(longest())});
        layout.add("ids", NPY_INT64);
    }

    std::int64_t rows() const override { return 1; }
    std::int64_t scratch() const override {
        std::int64_t room = 2;
        for (const FrameKind& kind : kinds_) room += 2 * kind.frames;
        return room;
    }

    void expand(const std::int64_t* slots, std::int64_t n, char* const* to, std::int64_t* scratch) override {
        const Ring& ring = owner_.ring;
        within(slots, n, ring.slots(), "relive._ring._native.sampling: a sampler of another ring");
        std::int64_t *at = scratch, *after = scratch + n;
        const std::size_t sums = gather_.size() + 4 * stacks_.size();  // the field of rewards that are summed
        char* const* const runs = to + sums + (rewards_ ? 1 : 0);
        char* const* const next = runs + runs_.size();
        const Windows out{reinterpret_cast<std::int64_t*>(next[chunked_ ? 5 : 4]),
                          at,
                          after,
                          reinterpret_cast<std::int32_t*>(next[3]),
                          reinterpret_cast<float*>(next[0]),
                          reinterpret_cast<std::uint8_t*>(next[1]),
                          reinterpret_cast<std::uint8_t*>(next[2])};
        std::int64_t behind = 0;
        // Then some are copied while the next ones are on their way. Of one step no gain was measured.
        const bool small = rewards_ && n < WORTH_RELEASING && stacks_.empty() && gather_.small();
        // What lies in a window is read before its rows may be overwritten: others make their calls while the last copy
        // is made.
        run(n, [&] {
            if (!rewards_ && !chunked_)
                behind = ring.windows(slots, n, longest(), discounts_.data(), out);
            else if (rewards_ && rewards_->type == NPY_DOUBLE)
                behind = walked<double>(slots, n, out, to, runs, small);
            else
                behind = walked<float>(slots, n, out, to, runs, small);
            if (!chunked_) return;
            std::memset(next[4], 1, std::size_t(n * longest()));  // windows that were cut short are few
            for (std::int64_t i = 0; i < n; ++i)
                if (const std::int64_t steps = out.steps[i]; steps < longest())
                    std::memset(next[4] + i * longest() + steps, 0, std::size_t(longest() - steps));
        });
        if (small) return;
        const std::int64_t* rows[2] = {at, after};
        if (stacks_.empty())
            return gather_.copy_to(to, rows, npy_intp(n),
                                   [&](std::int64_t items, auto&& kernel) { owner_.read(behind, items, kernel); });
        // The older frames of stacks are found first, while no other call may overwrite their rows.
        const auto locked = [](std::int64_t items, auto&& kernel) { run(items, kernel); };
        gather_.copy_to(to, rows, npy_intp(n), locked);
        const std::vector<const std::int64_t*> shown = frames(rows, n, scratch + 2 * n);
        for (std::size_t s = 0; s < stacks_.size(); ++s) {
            const Stacked& stack = stacks_[s];
            char* const stacks_to[2] = {to[gather_.size() + s], to[gather_.size() + stacks_.size() + s]};
            stack.gather->copy_to(stacks_to, &shown[2 * stack.kind], npy_intp(n * stack.frames), locked);
        }
    }

private:
    const PyGather& gather_;
    PyRing& owner_;
    std::vector<float> discounts_;
    std::vector<double> gammas_;
    nb::list keys_;
    nb::object reward_;
    bool chunked_;
    std::vector<Chunk> chunks_;
    nb::object held_;
    std::optional<RowArray> rewards_;
    std::vector<Stacked> stacks_;
    std::vector<FrameKind> kinds_;
    std::vector<RowArray> columns_;  // of chunks
    std::vector<Chunks> runs_;       // their values

    // The longest window.
    std::int64_t longest() const { return std::int64_t(discounts_.size()) - 1; }

    Stacked checked(nb::handle stack) {
        const auto of = [&](const char* name) { return stack.attr(name); };
        Stacked found{&nb::cast<const PyGather&>(of("gather")),
                      {named(of("obs")), named(of("next_obs"))},
                      nb::cast<std::int64_t>(of("frames")),
                      nb::cast<bool>(of("repeat")),
                      nb::cast<bool>(of("behind")),
                      0};
        found.gather->check_of(owner_, "relive._ring._native.Gather.transitions: a stack of another ring");
        require(found.gather->size() == 2 && found.frames >= 1 && found.frames <= owner_.ring.depth,
                "relive._ring._native.Gather.transitions: a stack that no lane holds, or not at two places");
        const auto same = [&](const FrameKind& kind) {
            return kind.frames == found.frames && kind.repeat == found.repeat;
        };
        const auto kind = std::find_if(kinds_.begin(), kinds_.end(), same);
        found.kind = std::size_t(kind - kinds_.begin());
        if (kind == kinds_.end()) kinds_.push_back({found.frames, found.repeat});
        return found;
    }

    // The rows of each kind's frames, at the anchors and at the successors.
    std::vector<const std::int64_t*> frames(const std::int64_t* const* newest, std::int64_t n, std::int64_t* to) const {
        std::vector<const std::int64_t*> shown;
        for (const FrameKind& kind : kinds_)
            for (const std::size_t place : {0, 1}) {
                owner_.ring.stacks(newest[place], n, kind.frames, kind.repeat, to);
                shown.push_back(to);
                to += n * kind.frames;
            }
        return shown;
    }

    static nb::tuple named(nb::handle given) {
        nb::tuple keys = nb::cast<nb::tuple>(given);
        require(keys.size() > 0, "relive._ring._native.Gather.transitions: a field without a name");
        return keys;
    }

    // Windows, the sums of their rewards, and their chunks; of `small` rows copies, too.
    template <typename T>
    std::int64_t walked(const std::int64_t* slots, std::int64_t n, const Windows& out, char* const* to,
                        char* const* runs, bool small) const {
        std::optional<Rewards<T>> rewards;
        if (rewards_) rewards.emplace(owner_.ring, rewards_->column, gammas_.data(), longest());
        const std::size_t width = rewards_ ? rewards_->column.row : 0;
        char* const sums = rewards_ ? runs[-1] : nullptr;
        const std::int64_t* const rows[2] = {out.at, out.after};
        return owner_.ring.windows(
            slots, n, longest(), discounts_.data(), out,
            [&](std::int64_t row, std::int64_t near) RELIVE_INLINE_LAMBDA {
                if (small) gather_.fetch(row, 0);
                if (rewards) rewards->prefetch(row, near);
                for (const Chunks& chunk : runs_) chunk.prefetch(row, near);
            },
            [&](std::int64_t i, const Window& of) RELIVE_INLINE_LAMBDA {
                if (small) gather_.fetch(of.after, 1);
                if (rewards)
                    rewards->sum(of.at, of.steps, of.together(), reinterpret_cast<T*>(sums + std::size_t(i) * width));
                for (std::size_t c = 0; c < runs_.size(); ++c)
                    runs_[c].copy(of.at, of.steps, runs[c] + std::size_t(i) * runs_[c].bytes());
            },
            [&](std::int64_t begin, std::int64_t end) {
                if (small) gather_.copy_fetched(to, rows, begin, end);
            });
    }
};

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? nb::inst_ptr<Expansion>(self)->traverse(visit, arg) : 0;
}

PyType_Slot expansion_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {0, nullptr}};

}  // namespace
}  // namespace relive

void bind_gather(nanobind::module_& m) {
    using namespace relive;
    nb::class_<Expansion>(m, "Expansion", nb::type_slots(expansion_slots))
        .def(
            "items",
            [](Expansion& of, In<std::int64_t> slots) -> nb::object { return of.items(slots.data, slots.size); },
            nb::arg("slots"));
    nb::class_<PyGather>(m, "Gather")
        .def(nb::init<nb::list, nb::list, bool>(), nb::arg("columns"), nb::arg("picks"), nb::arg("mapped"))
        .def("take", &PyGather::take, nb::arg("rows"), nb::arg("outs"))
        .def("taken", &PyGather::taken, nb::arg("rows"))
        .def("relabelled", &PyGather::relabelled, nb::arg("ring"), nb::arg("slots"), nb::arg("numbers"),
             nb::arg("ratio"), nb::arg("n_step"), nb::arg("strategy"))
        .def("unroll", &PyGather::unroll, nb::arg("ring"), nb::arg("slots"), nb::arg("length"), nb::arg("discounts"),
             nb::arg("time_major"), nb::arg("listed"), nb::arg("outs").none(), nb::arg("burn_in"))
        .def("expand", &PyGather::expand, nb::arg("ring"), nb::arg("slots"), nb::arg("discounts"), nb::arg("last"),
             nb::arg("outs").none())
        .def(
            "transitions",
            [](nb::handle_t<PyGather> gather, nb::handle_t<PyRing> ring, In<float> discounts, nb::list keys,
               nb::list stacks, nb::object reward, In<double> gammas, std::optional<nb::list> chunks) {
                Expansion* const made = new Transitions(nb::borrow(gather), nb::borrow(ring), discounts, keys, stacks,
                                                        reward, gammas, chunks);
                return nb::cast(made, nb::rv_policy::take_ownership);
            },
            nb::arg("ring"), nb::arg("discounts"), nb::arg("keys"), nb::arg("stacks"), nb::arg("reward").none(),
            nb::arg("gammas"), nb::arg("chunks").none())
        .def(
            "around",
            [](nb::handle_t<PyGather> gather, nb::handle_t<PyRing> ring, nb::list keys, nb::list offsets,
               nb::list masks, bool repeat, nb::object targets) {
                return windows_of_single(nb::borrow(gather), nb::borrow(ring), keys, offsets, masks, repeat, targets);
            },
            nb::arg("ring"), nb::arg("keys"), nb::arg("offsets"), nb::arg("masks"), nb::arg("repeat"),
            nb::arg("targets").none())
        .def(
            "goals",
            [](nb::handle_t<PyGather> gather, nb::handle_t<PyRing> ring, nb::handle_t<Expansion> item, nb::list keys,
               double ratio, int64_t n_step, int64_t strategy, nb::object outcomes, nb::object reward) {
                return goals_of_single(nb::borrow(gather), nb::borrow(ring), nb::borrow(item), keys, ratio, n_step,
                                       strategy, outcomes, reward);
            },
            nb::arg("ring"), nb::arg("item"), nb::arg("keys"), nb::arg("ratio"), nb::arg("n_step"), nb::arg("strategy"),
            nb::arg("outcomes"), nb::arg("reward").none())
        .def(
            "sequences",
            [](nb::handle_t<PyGather> gather, nb::handle_t<PyRing> ring, std::int64_t length, In<float> discounts,
               bool time_major, nb::list shown, std::int64_t summed, In<double> gammas, nb::list states, bool step_ids,
               std::int64_t burn_in, bool first) {
                return sequences_of_single(nb::borrow(gather), nb::borrow(ring), length, discounts, time_major, shown,
                                           summed, gammas, states, step_ids, burn_in, first);
            },
            nb::arg("ring"), nb::arg("length"), nb::arg("discounts"), nb::arg("time_major"), nb::arg("shown"),
            nb::arg("summed"), nb::arg("gammas"), nb::arg("states"), nb::arg("step_ids"), nb::arg("burn_in"),
            nb::arg("first"));
}
