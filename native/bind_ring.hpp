// The ring as a Python object: arguments are checked here, so that no call can read or write outside its arrays.
#pragma once

#include <functional>

#include "input.hpp"
#include "kernels.hpp"
#include "numpy_api.hpp"
#include "ring.hpp"
#include "sequences.hpp"

namespace relive {

// The named tuples of relive/_plans.py that results are made of.
struct Plans {
    PyTypeObject *windows, *expanded, *unrolled, *sequenced, *located, *changes, *drawn, *sampled, *mass, *read,
        *followed;
};
const Plans& plans();

// An array whose first axis is rows: contiguous but for the step from row to row.
struct RowArray {
    Column column;
    npy_intp rows;
    int type;

    explicit RowArray(nb::handle object, bool writable = false);
};

nb::object fold_given(nb::handle rewards, In<int32_t, 2> steps, In<double> gammas, bool time_major);

class PyRing {
public:
    PyRing(nb::list layouts, size_t num_obs, int64_t rows, InOut<uint8_t, 3> marks, InOut<int64_t, 2> counters,
           InOut<int64_t> clock, nb::object window, std::optional<InOut<double, 3>> given,
           std::optional<InOut<int64_t, 3>> arrival, nb::object notify);

    nb::object write(nb::list values, std::optional<nb::list> nexts, In<bool, 2> terminated, In<bool, 2> truncated,
                     In<int64_t> numbers, std::optional<In<double, 2>> priority);
    void cut(In<int64_t> numbers);
    nb::object changes(In<int64_t, 2> seen) const;
    nb::object ids(In<int64_t> slots) const;
    nb::object locate(In<int64_t> ids) const;
    nb::object follow(In<int64_t> ids, In<int64_t> steps) const;
    nb::object windows(In<int64_t> slots, In<float> discounts) const;
    nb::object stacks(In<int64_t, 0> newest, int64_t frames, bool repeat) const;
    nb::object fold(nb::handle column, In<int64_t> starts, In<int32_t> steps, In<double> gammas) const;

    // The windows at checked slots, as a plan; `at` and `after` are the lists of storage rows in it.
    nb::object windows_of(const In<int64_t>& slots, const In<float>& discounts, const int64_t*& at,
                          const int64_t*& after) const;

    // The sequences at checked slots, as a plan. `copies` is called for each of them, in order, with the one
    // after it (null behind the last).
    using Copies = std::function<void(int64_t item, const Sequence& sequence, const Sequence* next)>;
    nb::object sequences_of(const In<int64_t>& slots, int64_t length, const In<float>& discounts, bool listed,
                            const Copies& copies) const;

    // Which notices are still to be said; set again whenever one has been said.
    void watch(uint8_t notices) {
        ring.watched = notices;
        pending_ = false;
    }

    // A notice was noted, and Python has not said it yet.
    bool pending() const { return pending_; }
    // Look for notices after a call that wrote.
    void notice();

    // Until further notice a lane whose `head` could pass its entry is left to Python; None: no lane is.
    void limit(std::optional<InOut<int64_t>> limits);
    bool reaches_limit(const Steps& steps) const;

    Ring ring;
    Inputs inputs;  // of the call that is being made

private:
    nb::object keep_, notify_, limits_;
    const int64_t* limit_ = nullptr;
    nb::list columns_;  // keeps them alive
    bool pending_ = false;

    Column laid_out(nb::handle layout, bool observation);
    void check_lanes(const In<int64_t>& numbers) const;
    void check_slots(const In<int64_t>& slots) const;
    int64_t check_discounts(const In<float>& discounts) const;
    std::vector<const char*> checked_values(const nb::list& values, size_t count, npy_intp n, npy_intp length) const;
};

}  // namespace relive
