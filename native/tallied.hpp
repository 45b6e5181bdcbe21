// Sums of the lanes' counters, which the calls that write keep, so that nobody who asks for one adds up all lanes.
#pragma once

#include "rows.hpp"

namespace relive {

// Sums of the lanes' counters, 0 of those that are places, and the full lanes of whose rows more than 3 % hold no step.
struct Sums {
    Lane of{};
    int64_t crowded = 0;
};

class Tallied : public Rows {
public:
    // Sums over all lanes. While no other process writes, the calls that write keep them; else they are added up: of
    // what each lane has between two steps, or, where a `glance` is enough, at this moment.
    Sums sums(bool glance) const {
        const int64_t call = observe(calls_);
        Sums found;
        if (kept_at(call)) {
            move(sums_, found);
            return found;
        }
        for (int64_t number = 0; number < lanes; ++number) {
            Lane lane = copied(lane_of[number]);
            if (!glance) snapshot(number, reinterpret_cast<int64_t*>(&lane));
            tally(lane, {}, found);
        }
        if (!(call & 1) && may_keep()) {
            move(found, sums_);
            publish(summed_at_, call);
        }
        return found;
    }
    // Counters have changed, not by a call.
    void forget_sums() { publish(summed_at_, -1); }

protected:
    mutable Sums sums_;
    bool summing_ = false;  // each step is added to the sums

    class Summing {
    public:
        explicit Summing(Tallied& ring) : ring_(ring), kept_(ring.kept_at(ring.calls_)) {
            ring_.summing_ = kept_;
            publish(ring_.calls_, ring_.calls_ + 1);
        }
        Summing(const Summing&) = delete;
        ~Summing() {
            publish(ring_.calls_, ring_.calls_ + 1);
            if (kept_) publish(ring_.summed_at_, ring_.calls_);
        }

    private:
        Tallied& ring_;
        const bool kept_;
    };

    // Whether more rows were written, since the lane was last empty, than it has.
    bool full(const Lane& lane) const { return lane.head - lane.cleared > rows; }
    bool crowded(bool full, int64_t stored) const { return full && (kept - stored) * 100 > kept * 3; }

    // A lane has these counters now, instead of those. One by one, as for `copied`.
    void tally(const Lane& now, const Lane& before, Sums& sums) const {
        const auto each = [&]<auto... COUNTER>() {
            (add(sums.of.*COUNTER, peek(now.*COUNTER) - peek(before.*COUNTER)), ...);
        };
        each.template operator()<&Lane::head, &Lane::ready, &Lane::steps, &Lane::drawable, &Lane::stored,
                                 &Lane::ready_steps, &Lane::cuts, &Lane::unbootstrapped, &Lane::ends, &Lane::repeats>();
        add(sums.crowded, crowded(full(now), now.stored) - crowded(full(before), before.stored));
    }
    // Another thread may look meanwhile.
    static void add(int64_t& sum, int64_t more) { show(sum, sum + more); }

private:
    // A call at work has an odd number. Sums are those behind the call `summed_at_`: a reader that adds them up while
    // another thread makes a call spoils nothing.
    int64_t calls_ = 0;
    mutable int64_t summed_at_ = -1;

    static void move(const Sums& from, Sums& to) {
        for (size_t i = 0; i < sizeof(Sums) / sizeof(int64_t); ++i)
            show(reinterpret_cast<int64_t*>(&to)[i], peek(reinterpret_cast<const int64_t*>(&from)[i]));
    }
    static constexpr int64_t FEW = 128;  // lanes, which are sooner added up than each step is counted

    bool may_keep() const { return lanes > FEW && touched.begun && !touched.shared; }
    bool kept_at(int64_t call) const { return observe(summed_at_) == call && may_keep(); }
};

}  // namespace relive
