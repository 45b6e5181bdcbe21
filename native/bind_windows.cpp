// Windows of other offsets for each field, as the native `sample` expands them.
#include "around.hpp"
#include "bind_gather.hpp"
#include "draw.hpp"

namespace relive {
namespace {

// Offsets that follow each other: one copy where an anchor has all of these steps.
struct Stretch {
    std::int64_t first, count;
};

// Some columns with the same offsets.
struct Group {
    std::vector<Stretch> stretches;
    std::int64_t count = 0;
    bool wide = true;  // shown with an axis of offsets, and with a mask
};

// An anchor, and its storage row where the rows at all offsets exist and follow each other there, as of most anchors;
// -1 elsewhere.
struct Found : Amid {
    std::int64_t straight;
};

class WindowItems : public Expansion {
public:
    WindowItems(nb::object gather, nb::object ring, nb::list keys, nb::list offsets, nb::list masks, bool repeat,
                nb::object targets)
        : gather_(nb::cast<const PyGather&>(gather)),
          owner_(nb::cast<PyRing&>(ring)),
          repeat_(repeat),
          targets_(targets.is_none() ? nullptr : &expansion(targets)),
          keys_(keys),
          masks_(masks),
          held_(nb::make_tuple(gather, ring, targets)) {
        constexpr const char* wrong = "relive._ring._native.Gather.around: further than items reach, or no keys";
        gather_.check_of(owner_, "relive._ring._native.Gather.around: columns of another ring", offsets.size());
        require(keys_.size() == gather_.size() && masks_.size() == offsets.size(), wrong);
        for (std::size_t g = 0; g < offsets.size(); ++g) {
            const auto given = taken<In<std::int64_t>>(offsets[g], wrong);
            const Offsets reach(given.data, given.size);
            require(reach.count > 0 && reach.back <= owner_.ring.lookback && reach.ahead < owner_.ring.rows, wrong);
            require(!masks_[g].is_none() || reach.count == 1, wrong);
            back_ = std::max(back_, reach.back);
            ahead_ = std::max(ahead_, reach.ahead);
            Group group;
            group.count = reach.count;
            group.wide = !masks_[g].is_none();
            for (std::int64_t i = 0; i < reach.count; ++i) {
                if (i && given.data[i] == given.data[i - 1] + 1)
                    ++group.stretches.back().count;
                else
                    group.stretches.push_back({given.data[i], 1});
            }
            groups_.push_back(std::move(group));
        }
        Layout layout;
        lay_out(layout);  // whose keys are looked at here
    }

    void lay_out(Layout& layout) override {
        for (std::size_t c = 0; c < gather_.size(); ++c) {
            const nb::handle column = gather_.column(c);
            const npy_intp* shape = PyArray_DIMS(array(column));
            std::vector<npy_intp> item(shape + 1, shape + PyArray_NDIM(array(column)));
            const Group& group = groups_[gather_.pick(c)];
            if (group.wide) item.insert(item.begin(), npy_intp(group.count));
            layout.add(named(keys_[c]), nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(array(column)))), item);
        }
        if (targets_) targets_->lay_out(layout);
        fields_ = layout.fields().size();
        const nb::object flag = nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_BOOL)));
        for (std::size_t g = 0; g < groups_.size(); ++g)
            if (groups_[g].wide) layout.add(named(masks_[g]), flag, {npy_intp(groups_[g].count)});
        if (!targets_) layout.add("ids", NPY_INT64);
    }

    std::int64_t rows() const override {
        std::int64_t most = 1;
        for (const Group& group : groups_) most = std::max(most, group.count);
        return most;
    }
    std::int64_t scratch() const override {
        return sizeof(Found) / sizeof(std::int64_t) + (targets_ ? targets_->scratch() : 0);
    }

    void expand(const std::int64_t* slots, std::int64_t n, char* const* to, std::int64_t* scratch) override {
        const Ring& ring = owner_.ring;
        within(slots, n, ring.slots(), "relive._ring._native.sampling: a sampler of another ring");
        auto* const found = reinterpret_cast<Found*>(scratch);
        std::int64_t behind = 0;
        run(n * rows(), [&] {
            const Amidst lane(ring);
            std::int64_t* const ids = targets_ ? nullptr : reinterpret_cast<std::int64_t*>(to[fields_ + masks()]);
            amid(ring, slots, n, back_, ahead_, [&](std::int64_t i, const Amid& anchor) {
                const bool whole = anchor.back == back_ && anchor.ahead == ahead_;
                const bool straight = whole && lane.together(anchor, -back_) > back_ + ahead_;
                found[i] = {anchor, straight ? lane.row(anchor, 0) : -1};
                if (ids) ids[i] = anchor.row * ring.lanes + anchor.number;
                behind = std::max(behind, anchor.behind + anchor.back);
            });
            mark(found, n, to + fields_);
        });
        const auto copies = [&] {
            const Pages::Reading reading = gather_.reading();
            for (std::int64_t i = 0; reading.missing() && i < n; ++i) fetch(found[i], Pages::ask);
            constexpr std::int64_t TOGETHER = 8, AHEAD = 16;
            for (std::int64_t begin = -AHEAD; begin < n; begin += TOGETHER) {
                for (std::int64_t i = begin + AHEAD; i < std::min(begin + AHEAD + TOGETHER, n); ++i)
                    fetch(found[i], prefetch_row);
                for (std::size_t c = 0; begin >= 0 && c < gather_.size(); ++c)
                    copy(found, begin, std::min(begin + TOGETHER, n), c, to[c]);
            }
        };
        // Targets are found in rows that have to be there still.
        if (!targets_) return owner_.read(behind, n * rows(), copies);
        run(n * rows(), copies);
        targets_->expand(slots, n, to + gather_.size(), scratch + n * (sizeof(Found) / sizeof(std::int64_t)));
    }

private:
    const PyGather& gather_;
    PyRing& owner_;
    bool repeat_;
    Expansion* targets_;
    nb::list keys_, masks_;
    nb::object held_;
    std::vector<Group> groups_;
    std::int64_t back_ = 0, ahead_ = 0;
    std::size_t fields_ = 0;  // in front of the masks

    static Expansion& expansion(nb::handle given) {
        if (!nb::isinstance<Expansion>(given))
            throw nb::type_error("relive._ring._native.Gather.around: targets of another kind");
        return nb::cast<Expansion&>(given);
    }

    static nb::tuple named(nb::handle given) {
        nb::tuple keys = nb::cast<nb::tuple>(given);
        require(keys.size() > 0, "relive._ring._native.Gather.around: a field without a name");
        return keys;
    }

    std::size_t masks() const {
        return std::size_t(std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return g.wide; }));
    }

    // How many of the offsets lie before the first step of an anchor's stream, and how many behind its last one.
    static std::int64_t before(const Stretch& of, const Amid& anchor) {
        return std::clamp<std::int64_t>(-anchor.back - of.first, 0, of.count);
    }
    static std::int64_t after(const Stretch& of, const Amid& anchor) {
        return std::clamp<std::int64_t>(of.first + of.count - 1 - anchor.ahead, 0, of.count);
    }

    void mark(const Found* found, std::int64_t n, char* const* to) const {
        for (const Group& group : groups_) {
            if (!group.wide) continue;
            char* at = *to++;
            std::memset(at, 0, std::size_t(n * group.count));
            for (std::int64_t i = 0; i < n; ++i, at += group.count) {
                if (found[i].straight >= 0) continue;
                char* part = at;
                for (const Stretch& stretch : group.stretches) {
                    if (const std::int64_t gone = before(stretch, found[i])) std::memset(part, 1, std::size_t(gone));
                    const std::int64_t gone = after(stretch, found[i]);
                    if (gone) std::memset(part + stretch.count - gone, 1, std::size_t(gone));
                    part += stretch.count;
                }
            }
        }
    }

    // Has `ask` fetch what an item shows.
    template <typename Ask>
    void fetch(const Found& anchor, Ask ask) const {
        constexpr std::int64_t FEW = 2;
        const Amidst lane(owner_.ring);
        for (const Span& span : gather_.spans())
            for (const Stretch& stretch : groups_[span.pick].stretches) {
                std::int64_t row = anchor.straight + stretch.first, count = stretch.count;
                if (anchor.straight < 0) {
                    const std::int64_t first = std::clamp(stretch.first, -anchor.back, anchor.ahead);
                    row = lane.row(anchor, first);
                    count = std::min(stretch.count, lane.together(anchor, first));
                }
                const char* const from = span.data + std::size_t(row) * span.stride;
                // Of a few rows each is asked for: together they may be more lines than a request is for.
                for (std::int64_t i = 0; count <= FEW && i < count; ++i)
                    ask(from + span.stride * std::size_t(i), span.bytes);
                if (count > FEW) ask(from, span.stride * std::size_t(count - 1) + span.bytes);
            }
    }

    // Copy a column of some items.
    void copy(const Found* found, std::int64_t begin, std::int64_t end, std::size_t c, char* to) const {
        // In registers, whatever the loops write.
        const Group& group = groups_[gather_.pick(c)];
        const Stretch* const stretches = group.stretches.data();
        const std::size_t row = gather_.row(c), step = gather_.step(c), pieces = group.stretches.size();
        const char* const data = gather_.at(c, 0);
        const Amidst lane(owner_.ring);
        const char* const none = repeat_ ? nullptr : gather_.at(c, owner_.ring.zero_row());
        to += row * std::size_t(begin * group.count);
        for (std::int64_t i = begin; i < end; ++i) {
            const Found anchor = found[i];
            if (anchor.straight >= 0) {
                for (std::size_t s = 0; s < pieces; ++s) {
                    const Stretch stretch = stretches[s];
                    const char* const from = data + step * std::size_t(anchor.straight + stretch.first);
                    if (stretch.count == 1 || step == row)
                        copy_row(to, from, row * std::size_t(stretch.count));
                    else
                        chosen().copy_strip({from, to, row, step, row}, stretch.count);
                    to += row * std::size_t(stretch.count);
                }
                continue;
            }
            const auto at = [&](std::int64_t offset) { return data + step * std::size_t(lane.row(anchor, offset)); };
            const auto again = [&](std::int64_t offset, std::int64_t count) {
                for (const char* const from = none ? none : at(offset); count > 0; --count, to += row)
                    copy_row(to, from, row);
            };
            for (std::size_t s = 0; s < pieces; ++s) {
                const Stretch stretch = stretches[s];
                const std::int64_t lead = before(stretch, anchor), gone = after(stretch, anchor);
                if (lead) again(-anchor.back, lead);
                std::int64_t offset = stretch.first + lead;
                for (std::int64_t left = stretch.count - lead - gone; left > 0;) {
                    const std::int64_t count = left == 1 ? 1 : std::min(left, lane.together(anchor, offset));
                    if (count == 1 || step == row)
                        copy_row(to, at(offset), row * std::size_t(count));
                    else
                        chosen().copy_strip({at(offset), to, row, step, row}, count);
                    to += row * std::size_t(count);
                    offset += count;
                    left -= count;
                }
                if (gone) again(anchor.ahead, gone);
            }
        }
    }
};

}  // namespace

nb::object windows_of_single(nb::object gather, nb::object ring, nb::list keys, nb::list offsets, nb::list masks,
                             bool repeat, nb::object targets) {
    Expansion* const made = new WindowItems(std::move(gather), std::move(ring), std::move(keys), std::move(offsets),
                                            std::move(masks), repeat, std::move(targets));
    return nb::cast(made, nb::rv_policy::take_ownership);
}

}  // namespace relive
