// The rows that windows and sequences consist of: what `windows` and `sequences` return.
#pragma once

#include "bind_ring.hpp"

namespace relive {

// The windows that start at some places, one column of the plan an array.
struct Windows {
    const Ring& ring;
    const std::int64_t* place;
    npy_intp n;
    const float* powers;
    std::int64_t longest;
    Out<std::int64_t> ids, at, after;
    nb::object steps, discounts, terminated, truncated;

    Windows(const PyRing& owner, nb::handle places, nb::handle discount_powers)
        : ring(owner.ring()),
          place(data<std::int64_t>(places)),
          n(PyArray_SIZE(array(places))),
          powers(data<float>(discount_powers)),
          longest(PyArray_SIZE(array(discount_powers)) - 1),
          ids(n),
          at(n),
          after(n),
          steps(fresh(NPY_INT32, {n})),
          discounts(fresh(NPY_FLOAT, {n})),
          terminated(fresh(NPY_BOOL, {n})),
          truncated(fresh(NPY_BOOL, {n})) {}

    void fill() const {
        run(n, [&] {
            for (npy_intp i = 0; i < n; ++i) {
                if (i + DEEP < n) ring.prefetch_mark(place[i + DEEP]);
                fill(i);
            }
        });
    }

private:
    void fill(npy_intp i) const {
        std::int32_t& length = data<std::int32_t>(steps)[i];
        const std::uint8_t mark = ring.window(place[i], longest, at.data[i], after.data[i], length);
        ids.data[i] = ring.id_at(place[i]);
        data<std::uint8_t>(terminated)[i] = (mark & TERMINATED) != 0;
        data<std::uint8_t>(truncated)[i] = (mark & TRUNCATED) != 0;
        data<float>(discounts)[i] = mark & (TERMINATED | LOST) ? 0.0f : powers[length];
    }
};

inline nb::object PyRing::windows(nb::handle places, nb::handle discounts) const {
    const Windows windows(*this, places, discounts);
    windows.fill();
    return nb::make_tuple(windows.ids.array, windows.at.array, windows.after.array, windows.steps, windows.discounts,
                          windows.terminated, windows.truncated);
}

inline nb::object PyRing::sequences(nb::handle places, int64_t length, nb::handle discounts) const {
    const npy_intp n = PyArray_SIZE(array(places)), window = PyArray_SIZE(array(discounts)) - 1;
    const npy_intp count = length + window;
    const auto made = [n](int type, npy_intp width) { return fresh(type, {n, width}); };
    nb::object observed = made(NPY_INT64, count), before = made(NPY_INT64, count), steps = made(NPY_INT32, length);
    nb::object discount = made(NPY_FLOAT, length), terminated = made(NPY_BOOL, length);
    nb::object truncated = made(NPY_BOOL, length), mask = made(NPY_BOOL, length), after = nb::none(),
               first = nb::none();
    Sequence out{data<int64_t>(observed),
                 data<int64_t>(before),
                 data<int32_t>(steps),
                 data<float>(discount),
                 data<uint8_t>(terminated),
                 data<uint8_t>(truncated),
                 data<uint8_t>(mask),
                 nullptr,
                 nullptr};
    if (ring_.across) {
        after = made(NPY_INT64, length);
        first = made(NPY_BOOL, count);
        out.after = data<int64_t>(after);
        out.first = data<uint8_t>(first);
    }
    std::vector<uint8_t> marks(static_cast<size_t>(count));
    std::vector<int64_t> successors(static_cast<size_t>(count));
    run(n * count, [&] {
        for (npy_intp i = 0; i < n; ++i) {
            if (i + 4 < n) ring_.prefetch_mark(data<int64_t>(places)[i + 4]);
            ring_.sequence(data<int64_t>(places)[i], length, window, data<float>(discounts), i, out, marks.data(),
                           successors.data());
        }
    });
    return nb::make_tuple(observed, before, steps, discount, terminated, truncated, mask, after, first);
}

template <typename T>
inline void fold_sequences_as(nb::handle rewards, nb::handle steps, nb::handle gammas, bool time_major,
                              nb::handle out) {
    const npy_intp* shape = PyArray_DIMS(array(steps));
    const npy_intp items = shape[time_major ? 1 : 0], length = shape[time_major ? 0 : 1];
    const npy_intp count = PyArray_DIM(array(rewards), time_major ? 0 : 1);
    const npy_intp width = PyArray_SIZE(array(out)) / std::max<npy_intp>(items * length, 1);
    const npy_intp later = time_major ? items * width : width;  // from one position to the next
    const auto* from = data<T>(rewards);
    const auto* taken = data<std::int32_t>(steps);
    const auto* gamma = data<double>(gammas);
    auto* to = data<T>(out);
    for (npy_intp b = 0; b < items; ++b)
        for (npy_intp i = 0; i < length; ++i) {
            const npy_intp at = time_major ? i * items + b : b * length + i;
            const T* first = from + (time_major ? (i + 1) * items + b : b * count + i + 1) * width;
            for (npy_intp w = 0; w < width; ++w) {
                double total = 0;
                for (std::int32_t k = 0; k < taken[at]; ++k) total += gamma[k] * double(first[k * later + w]);
                to[at * width + w] = T(total);
            }
        }
}

inline nb::object fold_sequences(nb::handle rewards, nb::handle steps, nb::handle gammas, bool time_major) {
    std::vector<npy_intp> shape(PyArray_DIMS(array(rewards)),
                                PyArray_DIMS(array(rewards)) + PyArray_NDIM(array(rewards)));
    std::copy_n(PyArray_DIMS(array(steps)), 2, shape.begin());
    nb::object out = fresh(PyArray_TYPE(array(rewards)), shape);
    if (PyArray_TYPE(array(rewards)) == NPY_FLOAT)
        fold_sequences_as<float>(rewards, steps, gammas, time_major, out);
    else
        fold_sequences_as<double>(rewards, steps, gammas, time_major, out);
    return out;
}

}  // namespace relive
