// The ring as a Python object: arguments are checked here, so that no call can read or write outside its arrays.
#pragma once

#include <functional>

#include "hindsight.hpp"
#include "input.hpp"
#include "kernels.hpp"
#include "lock.hpp"
#include "numpy_api.hpp"
#include "ring.hpp"
#include "sequences.hpp"

namespace relive {

// The named tuples of relive/_plans.py that results are made of.
struct Plans {
    PyTypeObject *windows, *expanded, *unrolled, *sequenced, *located, *changes, *drawn, *sampled, *mass, *read,
        *followed, *relabelled, *around;
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
    PyRing(nb::list layouts, size_t num_obs, int64_t rows, int64_t steps, InOut<uint8_t, 3> marks,
           InOut<int64_t, 2> counters, InOut<int64_t> clock, nb::object window, std::optional<InOut<double, 3>> given,
           std::optional<InOut<int64_t, 2>> touched, nb::object notify, std::optional<In<uint8_t>> busy);

    nb::object write(nb::list values, std::optional<nb::list> nexts, In<bool, 2> terminated, In<bool, 2> truncated,
                     In<int64_t> numbers, std::optional<In<double, 2>> priority);
    void cut(In<int64_t> numbers);
    nb::object changes(In<int64_t, 2> seen) const;
    nb::object ids(In<int64_t> slots) const;
    // The ids of all items that can be drawn, by lane and age.
    nb::object drawable() const;
    nb::object locate(In<int64_t> ids) const;
    nb::object standing(In<int64_t> ids) const;
    nb::object follow(In<int64_t> ids, In<int64_t> steps) const;
    nb::object windows(In<int64_t> slots, In<float> discounts) const;
    nb::object around(In<int64_t> slots, In<int64_t> offsets, bool repeat) const;
    Relabelling relabelling(const In<int64_t>& slots, const In<double, 2>& numbers, double ratio, int64_t n_step,
                            int64_t strategy) const;
    nb::object stacks(In<int64_t, 0> newest, int64_t frames, bool repeat) const;
    nb::object fold(nb::handle column, In<int64_t> starts, In<int32_t> steps, In<double> gammas) const;
    nb::object chunks(nb::handle column, In<int64_t> starts, In<int32_t> steps, int64_t length) const;

    // The windows at checked slots, as a plan; `at` and `after` are the lists of storage rows in it, and no anchor lies
    // by more than `behind` rows behind its lane's head.
    nb::object windows_of(const In<int64_t>& slots, const In<float>& discounts, const int64_t*& at,
                          const int64_t*& after, int64_t& behind) const;

    // The sequences at checked slots, as a plan. `copies` is called for each of them, in order, with the one
    // after it (null behind the last).
    using Copies = std::function<void(int64_t item, const Sequence& sequence, const Sequence* next)>;
    nb::object sequences_of(const In<int64_t>& slots, int64_t length, const In<float>& discounts, int64_t burn_in,
                            bool listed, const Copies& copies) const;
    // Refuse a burn-in that items do not look back to.
    void check_burn_in(int64_t burn_in, int64_t length, const char* what) const {
        require(burn_in >= 0 && burn_in < length && burn_in <= ring.lookback && !(burn_in && ring.across), what);
    }

    // The lock under which this ring is used.
    void guard(nb::handle_t<Lock> lock) {
        guard_ = nb::borrow(lock);
        lock_ = nb::cast<Lock*>(lock);
    }

    // Copy from rows of items, the last that a call does with them; none lies by more than `behind` rows behind its
    // lane's head. While a large batch is copied other threads may make their calls.
    template <typename Copies>
    void read(int64_t behind, int64_t n, Copies&& copies) {
        if (n < WORTH_RELEASING || !lock_ || !lock_->once()) return run(n, copies);
        if (!readers_) room_ = ring.depth;
        room_ = std::min(room_, ring.depth - 1 - behind);
        ++readers_;
        lock_->outside([&] {
            copies();
            --readers_;
        });
    }
    // Write steps, but not over rows that another thread copies.
    void put(const Steps& steps, int64_t* ids);

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

    // From now on a lane whose entry is 0 is left to Python; None: no lane is.
    void allow(std::optional<InOut<uint8_t>> lanes);

    // Where other processes write: `look` before a draw; `overtaken` after its copies says which of its items are to be
    // thrown away, None where all are whole.
    void look();
    // What a sampler takes in from now on: of each lane none of the new rows before `from`, none from `until` on. None:
    // all.
    void admit(std::optional<InOut<int64_t>> from, std::optional<InOut<int64_t>> until);
    // Note how far the sampler took in each lane, and whether writers outran it; None: up to the last look.
    void took(std::optional<In<int64_t>> until, bool outrun);
    nb::object overtaken(In<int64_t> ids) const;
    nb::object snapshot() const;
    nb::object sums() const;

    Ring ring;
    Inputs inputs;      // of the call that is being made
    Ready ready;        // at the last look
    int64_t asked = 0;  // calls of which Python had to look at a value

private:
    nb::object keep_, notify_, limits_, lanes_, from_, until_;
    const int64_t* limit_ = nullptr;
    const uint8_t* allowed_ = nullptr;
    nb::list columns_;  // keeps them alive
    bool pending_ = false;

    nb::object guard_;
    Lock* lock_ = nullptr;
    std::atomic<int64_t> readers_{0};  // threads that copy rows outside of the lock
    int64_t room_ = 0;                 // rows that a lane may still be given before one of theirs is overwritten
    std::vector<int64_t> heads_;       // of a write's lanes before it; kept for the next one

    void wait_for_readers() const;
    Column laid_out(nb::handle layout, bool observation);
    void check_lanes(const In<int64_t>& numbers) const;
    void check_slots(const In<int64_t>& slots) const;
    int64_t check_discounts(const In<float>& discounts) const;
    std::vector<const char*> checked_values(const nb::list& values, size_t count, npy_intp n, npy_intp length) const;
};

}  // namespace relive
