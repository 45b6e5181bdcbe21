// What is read off a ring, as plans: the part of PyRing that changes nothing.
#include "around.hpp"
#include "bind_ring.hpp"
#include "changes.hpp"
#include "checks.hpp"
#include "chunks.hpp"

namespace relive {
namespace {

void require_rewards(nb::handle rewards, int type) {
    if ((type != NPY_FLOAT && type != NPY_DOUBLE) || !PyArray_ISALIGNED(array(rewards)))
        throw nb::type_error("relive._ring._native: rewards have to be floats");
}

}  // namespace

int64_t PyRing::check_discounts(const In<float>& discounts) const {
    require(discounts.size >= 2 && discounts.size - 1 <= ring.rows,
            "relive._ring._native.Ring: no window that a lane holds");
    return discounts.size - 1;
}

void PyRing::check_slots(const In<int64_t>& slots) const {
    within(slots.data, slots.size, ring.slots(), "relive._ring._native.Ring: a slot outside the ring");
}

nb::object PyRing::ids(In<int64_t> slots) const {
    check_slots(slots);
    Out<std::int64_t> ids(slots.size);
    run(slots.size, [&] { ring.ids(slots.data, slots.size, ids.data); });
    return ids.array;
}

nb::object PyRing::drawable() const {
    std::vector<Seen> now(static_cast<size_t>(ring.lanes));
    int64_t most = 0, count = 0;
    for (int64_t number = 0; number < ring.lanes; ++number) {
        now[size_t(number)] = relive::look(ring.lane_of[number]);
        most += std::max(now[size_t(number)].ready - now[size_t(number)].oldest, int64_t(0));
    }
    Out<std::int64_t> ids(most);
    run(most, [&] {
        for (int64_t number = 0; number < ring.lanes; ++number) {
            const Seen& lane = now[size_t(number)];
            const Position at = ring.position(number, lane.head);
            int64_t memory = lane.oldest < lane.ready ? ring.memory_of(at, lane.oldest) : 0;
            for (int64_t row = lane.oldest; row < lane.ready; ++row, memory = ring.wrapped(memory + 1)) {
                ids.data[count] = row * ring.lanes + number;
                count += (ring.mark_at(ring.storage_row(number, memory)) & ANCHOR) == ANCHOR;
            }
        }
    });
    return count == most ? ids.array : ids.array[nb::slice(count)];
}

nb::object PyRing::locate(In<int64_t> ids) const {
    Out<std::int64_t> slots(ids.size);
    Out<std::uint8_t> states(ids.size);
    bool all = true;
    run(ids.size, [&] { all = ring.locate(ids.data, ids.size, slots.data, states.data); });
    return plan(plans().located, slots.array, all ? nb::none() : states.array);
}

void PyRing::look() { ring.look(ready); }

void PyRing::admit(std::optional<InOut<int64_t>> from, std::optional<InOut<int64_t>> until) {
    for (const auto* given : {&from, &until})
        require(!*given || (*given)->size == ring.lanes, "relive._ring._native.Ring.admit: not one for each lane");
    ring.from = from ? from->data : nullptr;
    ring.until = until ? until->data : nullptr;
    from_ = from ? nb::borrow(from->object) : nb::none();
    until_ = until ? nb::borrow(until->object) : nb::none();
}

void PyRing::took(std::optional<In<int64_t>> until, bool outrun) {
    if (!until) return ready.settle();
    require(until->size == ring.lanes && ready.rows.size() == size_t(ring.lanes),
            "relive._ring._native.Ring.took: not one for each lane");
    ready.taken.assign(until->data, until->data + ring.lanes);
    ready.came = 0;
    for (size_t number = 0; number < ready.rows.size(); ++number)
        ready.came += std::max(ready.rows[number] - std::max(ready.taken[number], int64_t(0)), int64_t(0));
    ready.outrun = outrun;
}

nb::object PyRing::overtaken(In<int64_t> ids) const {
    require(ready.rows.size() == size_t(ring.lanes), "relive._ring._native.Ring.overtaken: no look before");
    for (int64_t i = 0; i < ids.size; ++i)
        require(ids.data[i] >= 0, "relive._ring._native.Ring.overtaken: an id that is none");
    Out<bool> bad(ids.size);
    const bool any = ring.overtaken(ready, ids.data, ids.size, reinterpret_cast<uint8_t*>(bad.data));
    return any ? bad.array : nb::none();
}

nb::object PyRing::snapshot() const {
    Out<std::int64_t> counters(std::vector<npy_intp>{npy_intp(ring.lanes), COUNTERS});
    run(ring.lanes, [&] {
        for (int64_t number = 0; number < ring.lanes; ++number)
            ring.snapshot(number, counters.data + number * COUNTERS);
    });
    return counters.array;
}

nb::object PyRing::sums() const {
    Out<std::int64_t> totals(std::vector<npy_intp>{npy_intp(COUNTERS)});
    const Sums found = ring.sums(false);
    std::memcpy(totals.data, &found.of, sizeof(Lane));
    return totals.array;
}

nb::object PyRing::standing(In<int64_t> ids) const {
    Out<std::int64_t> rows(ids.size);
    run(ids.size, [&] { ring.standing(ids.data, ids.size, rows.data); });
    return rows.array;
}

nb::object PyRing::follow(In<int64_t> ids, In<int64_t> steps) const {
    require(ids.size == steps.size, "relive._ring._native.Ring.follow: shapes differ");
    Out<std::int64_t> reached(ids.size), made(ids.size);
    run(ids.size, [&] {
        std::vector<Position> seen(size_t(ring.lanes), {-1, 0, 0});
        for (int64_t i = 0; i < ids.size; ++i)
            reached.data[i] = ring.follow(ids.data[i], steps.data[i], seen, made.data[i]);
    });
    return plan(plans().followed, reached.array, made.array);
}

nb::object PyRing::windows_of(const In<int64_t>& slots, const In<float>& discounts, const int64_t*& rows_at,
                              const int64_t*& rows_after, int64_t& behind) const {
    check_slots(slots);
    const int64_t n = check_discounts(discounts), count = slots.size;
    Out<std::int64_t> ids(count), at(count), after(count);
    Out<std::int32_t> steps(count);
    Out<float> discount(count);
    Out<bool> terminated(count), truncated(count);
    const Windows out{ids.data,
                      at.data,
                      after.data,
                      steps.data,
                      discount.data,
                      reinterpret_cast<uint8_t*>(terminated.data),
                      reinterpret_cast<uint8_t*>(truncated.data)};
    run(count, [&] { behind = ring.windows(slots.data, count, n, discounts.data, out); });
    rows_at = at.data;
    rows_after = after.data;
    return plan(plans().windows, ids.array, at.array, after.array, steps.array, discount.array, terminated.array,
                truncated.array);
}

nb::object PyRing::windows(In<int64_t> slots, In<float> discounts) const {
    const int64_t *at, *after;
    int64_t behind;
    return windows_of(slots, discounts, at, after, behind);
}

nb::object PyRing::around(In<int64_t> slots, In<int64_t> offsets, bool repeat) const {
    check_slots(slots);
    const Offsets reach(offsets.data, offsets.size);
    require(reach.count > 0 && reach.back <= ring.lookback && reach.ahead < ring.rows,
            "relive._ring._native.Ring.around: further than items reach");
    const std::vector<npy_intp> shape{npy_intp(slots.size), npy_intp(offsets.size)};
    Out<std::int64_t> rows(shape);
    Out<bool> pad(shape);
    run(slots.size * offsets.size, [&] {
        relive::around(ring, slots.data, slots.size, reach, repeat, rows.data, reinterpret_cast<uint8_t*>(pad.data));
    });
    return plan(plans().around, rows.array, pad.array);
}

Relabelling PyRing::relabelling(const In<int64_t>& slots, const In<double, 2>& numbers, double ratio, int64_t n_step,
                                int64_t strategy) const {
    check_slots(slots);
    require(numbers.shape[0] == 2 && numbers.shape[1] == slots.size,
            "relive._ring._native.Gather.relabelled: shapes differ");
    require(n_step >= 1 && n_step <= ring.rows, "relive._ring._native.Gather.relabelled: no window that a lane holds");
    require(strategy >= 0 && strategy <= int64_t(Strategy::EPISODE),
            "relive._ring._native.Gather.relabelled: strategy");
    const double* const where = numbers.data + slots.size;
    for (int64_t i = 0; i < slots.size; ++i)
        require(where[i] >= 0.0 && where[i] < 1.0, "relive._ring._native.Gather.relabelled: no number in [0, 1)");
    Relabelling out;
    run(slots.size, [&] {
        Relabeller(ring, n_step, Strategy(strategy)).relabel(slots.data, numbers.data, ratio, where, slots.size, out);
    });
    return out;
}

nb::object PyRing::sequences_of(const In<int64_t>& slots, int64_t length, const In<float>& discounts, int64_t burn_in,
                                bool listed, const Copies& copies) const {
    check_slots(slots);
    const int64_t n = check_discounts(discounts), items = slots.size;
    require(length >= 1 && length <= ring.rows && length + n - 1 <= ring.rows,
            "relive._ring._native.Gather.unroll: longer than a lane");
    check_burn_in(burn_in, length, "relive._ring._native.Gather.unroll: no such burn-in");
    const Sequences sequences(ring, length, n, discounts.data, burn_in);
    const int64_t count = sequences.positions();
    const std::vector<npy_intp> wide{npy_intp(items), npy_intp(count)}, narrow{npy_intp(items), npy_intp(length)};
    Out<std::int64_t> ids(items), lead(items);
    Out<bool> first(items);
    Out<std::int32_t> steps(narrow);
    Out<float> discount(narrow);
    Out<bool> terminated(narrow), truncated(narrow), mask(narrow);
    std::optional<Out<std::int64_t>> observed, before;
    if (listed) {
        observed.emplace(wide);
        before.emplace(wide);
    }
    const auto flags = [](Out<bool>& out) { return reinterpret_cast<uint8_t*>(out.data); };
    const Unrolled out{steps.data, discount.data, flags(terminated), flags(truncated), flags(mask)};
    std::vector<int64_t> apart, successors, begins;
    run(items * count, [&] {
        ring.ids(slots.data, items, ids.data);
        Sequence one, other, *now = &one, *next = &other;
        if (items) sequences.find(slots.data[0], *now);
        for (int64_t b = 0; b < items; ++b, std::swap(now, next)) {
            if (b + 1 < items) sequences.find(slots.data[b + 1], *next);
            sequences.windows(*now, out.from(b * length));
            const auto note_apart = [&](int64_t i, int64_t row) {
                apart.push_back(b * length + i);
                successors.push_back(row);
            };
            if (ring.across) sequences.joints(*now, note_apart, [&](int64_t i) { begins.push_back(b * count + i); });
            lead.data[b] = now->lead;
            first.data[b] = now->first;
            if (listed) sequences.list(*now, observed->data + b * count, before->data + b * count);
            copies(b, *now, b + 1 < items ? next : nullptr);
        }
    });
    const auto or_none = [](auto& made) { return made ? made->array : nb::none(); };
    return plan(plans().unrolled, ids.array, or_none(observed), or_none(before), steps.array, discount.array,
                terminated.array, truncated.array, mask.array, listed_of(apart), listed_of(successors),
                listed_of(begins), lead.array, first.array);
}

nb::object PyRing::stacks(In<int64_t, 0> newest, int64_t frames, bool repeat) const {
    within(newest.data, newest.size, ring.zero_row(), "relive._ring._native.Ring.stacks: a row outside the ring");
    require(frames >= 1 && frames <= ring.depth, "relive._ring._native.Ring.stacks: more frames than a lane holds");
    std::vector<npy_intp> shape(newest.shape, newest.shape + newest.axes);
    shape.push_back(npy_intp(frames));
    Out<std::int64_t> rows(shape);
    run(newest.size * frames, [&] { ring.stacks(newest.data, newest.size, frames, repeat, rows.data); });
    return rows.array;
}

nb::object PyRing::fold(nb::handle column, In<int64_t> starts, In<int32_t> steps, In<double> gammas) const {
    const RowArray rows(column);
    require(rows.rows == ring.zero_row() + 1 && steps.size == starts.size,
            "relive._ring._native.Ring.fold: shapes differ");
    require_rewards(column, rows.type);
    within(starts.data, starts.size, ring.zero_row(), "relive._ring._native.Ring.fold: a row outside the ring");
    check_steps(steps.data, steps.size, gammas.size);
    std::vector<npy_intp> shape(PyArray_DIMS(array(column)), PyArray_DIMS(array(column)) + PyArray_NDIM(array(column)));
    shape[0] = npy_intp(starts.size);
    nb::object out = fresh(rows.type, shape);
    void* to = PyArray_DATA(array(out));
    run(starts.size, [&] {
        const int64_t n = starts.size, count = gammas.size;
        if (rows.type == NPY_FLOAT)
            relive::fold(ring, rows.column, starts.data, steps.data, n, gammas.data, count, static_cast<float*>(to));
        else
            relive::fold(ring, rows.column, starts.data, steps.data, n, gammas.data, count, static_cast<double*>(to));
    });
    return out;
}

nb::object PyRing::chunks(nb::handle column, In<int64_t> starts, In<int32_t> steps, int64_t length) const {
    const RowArray rows(column);
    require(rows.rows == ring.zero_row() + 1 && steps.size == starts.size && length >= 1 && length <= ring.rows,
            "relive._ring._native.Ring.chunks: shapes differ");
    within(starts.data, starts.size, ring.zero_row(), "relive._ring._native.Ring.chunks: a row outside the ring");
    check_steps(steps.data, steps.size, length + 1);
    std::vector<npy_intp> shape(PyArray_DIMS(array(column)), PyArray_DIMS(array(column)) + PyArray_NDIM(array(column)));
    shape[0] = npy_intp(length);
    shape.insert(shape.begin(), npy_intp(starts.size));
    nb::object out = fresh(rows.type, shape);
    char* const to = PyArray_BYTES(array(out));
    const Chunks chunks(ring, rows.column, length);
    run(starts.size, [&] {
        for (int64_t i = 0; i < starts.size; ++i)
            chunks.copy(starts.data[i], steps.data[i], to + size_t(i) * chunks.bytes());
    });
    return out;
}

nb::object fold_given(nb::handle rewards, In<int32_t, 2> steps, In<double> gammas, bool time_major) {
    const RowArray given(rewards);
    const int axes = PyArray_NDIM(array(rewards)), items = time_major ? 1 : 0, time = 1 - items;
    require(axes >= 2 && PyArray_IS_C_CONTIGUOUS(array(rewards)) && gammas.size >= 1 &&
                PyArray_DIM(array(rewards), items) == steps.shape[items] &&
                PyArray_DIM(array(rewards), time) >= steps.shape[time] + gammas.size - 1,
            "relive._ring._native.Ring.fold_sequences: shapes differ");
    require_rewards(rewards, given.type);
    check_steps(steps.data, steps.size, gammas.size);
    std::vector<npy_intp> shape(PyArray_DIMS(array(rewards)), PyArray_DIMS(array(rewards)) + axes);
    Sheet sheet{steps.shape[items], steps.shape[time], shape[size_t(time)], 1, time_major};
    for (size_t axis = 2; axis < shape.size(); ++axis) sheet.width *= shape[axis];
    shape[size_t(time)] = steps.shape[time];
    nb::object out = fresh(given.type, shape);
    void* to = PyArray_DATA(array(out));
    if (given.type == NPY_FLOAT)
        fold_sequences(reinterpret_cast<const float*>(given.column.data), steps.data, gammas.data, sheet,
                       static_cast<float*>(to));
    else
        fold_sequences(reinterpret_cast<const double*>(given.column.data), steps.data, gammas.data, sheet,
                       static_cast<double*>(to));
    return out;
}

}  // namespace relive
