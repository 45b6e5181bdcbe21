// Calls on a ring that other processes write, too.
#pragma once

#include <cmath>

#include "bind_ring.hpp"
#include "draw.hpp"

namespace relive {

// How a call meets other processes that write to the ring; without any it does nothing. As `JointAccess` in
// relive.processes, to which it leaves what is rare.
class Joint {
public:
    // `given`: None, or the ring, counts that all processes see, what knows whether this process was forked, and how
    // many rows a call takes in.
    explicit Joint(const nb::object& given) : given_(given) {
        if (given.is_none()) return;
        ring_ = &nb::cast<PyRing&>(given[0]);
        const auto counts = taken<InOut<int64_t>>(given[1], "relive._ring._native: counts of another shape");
        require(counts.size > RARITY, "relive._ring._native: counts of another shape");
        counts_ = counts.data;
        access_ = given[2];
        most_ = nb::cast<int64_t>(given[3]);
    }

    explicit operator bool() const { return ring_; }
    const nb::object& held() const { return given_; }

    // Look at the ring; false where the call is left to Python.
    bool look() {
        if (!ring_) return true;
        if (!access_.attr(forked_).is(nb::handle(Py_False))) return false;
        ring_->look();
        return ring_->ready.came <= most_;
    }
    // The sampler has taken in all that the look saw.
    void settle() {
        if (ring_) ring_->ready.settle();
    }
    // Whether some of the copied items have to be thrown away.
    bool overtaken(const int64_t* ids, int64_t n, void* room) const {
        int64_t all = 0;
        for (int64_t i = 0; i < n; ++i) all |= ids[i];
        return all < 0 || ring_->ring.overtaken(ring_->ready, ids, n, static_cast<uint8_t*>(room));
    }

    // Count for monitors in other processes. Of one draw in some they see how probable an item was.
    void drew(Chooser& chooser, const int64_t* ids, int64_t n, const int64_t* slots) {
        constexpr int64_t LOOKS = 16;
        counts_[DRAWN] += n;
        counts_[LAST_ID] = ids[n / 2];
        if (draws_++ % LOOKS) return;
        double chance;
        chooser.probability(slots, 1, &chance);
        chance *= double(ring_->ring.sums(false).of.drawable);
        counts_[RARITY] = chance > 0 ? int64_t(1e9 * std::log(chance)) : 0;
    }
    void updated(int64_t given, int64_t stale) {
        if (!ring_) return;
        counts_[UPDATES] += given;
        counts_[STALE] += stale;
    }

private:
    enum { DRAWN, UPDATES, STALE, REDRAWN, LAST_ID, RARITY };
    nb::object given_, access_;
    const nb::object forked_ = nb::steal(PyUnicode_InternFromString("forked"));
    PyRing* ring_ = nullptr;
    int64_t *counts_ = nullptr, most_ = 0, draws_ = 0;
};

}  // namespace relive
