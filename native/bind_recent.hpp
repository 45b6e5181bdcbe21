// Draws that prefer new items: 2**(-rate * age) for the age of an item among those of its lane.
#pragma once

#include "bind_queue.hpp"

namespace relive {

// The law over a queue of anchors. A lane's mass is 1 - 2**(-rate * items); the masses of an age are in units of that.
class PyRecency {
public:
    PyRecency(nb::object queue, double rate, bool relative)
        : queue_(nb::cast<PyQueue&>(queue)), given_(rate), relative_(relative), held_(std::move(queue)) {
        require(rate > 0 && std::isfinite(rate), "relive._ring._native.Recency: a rate that is not positive");
    }

    std::int64_t refresh() {
        const std::int64_t size = queue_.refresh();
        queue_.visit([&](const auto& queue) {
            if (queue.version() != version_) sum(queue);
            version_ = queue.version();
        });
        return size;
    }

    double total() const { return ends_.empty() ? 0.0 : ends_.back(); }
    double smallest() const {
        double mass[1] = {rate_ * double(longest_ - 1)};
        chosen().decay(mass, 1);
        return mass[0] * first_;
    }

    // Choose slots by uniforms; `values` becomes their masses.
    void choose(const double* u, std::int64_t n, std::int64_t* slots, double* values) const {
        const double sum = total(), mean = 1.0 / rate_;
        for (std::int64_t i = 0; i < n; ++i) {
            const double target = u[i] * sum;
            slots[i] = lane_of(target);
            values[i] = target - (slots[i] ? ends_[size_t(slots[i]) - 1] : 0.0);
        }
        chosen().reached(values, n);
        queue_.visit([&](const auto& queue) {
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t last = queue.size_of(slots[i]) - 1;
                const double steps = values[i] * mean;
                const std::int64_t age = steps < double(last) ? std::int64_t(steps) : last;
                slots[i] = queue.slot_of(queue_.ring(), slots[i], last - age);
                values[i] = rate_ * double(age);
            }
        });
        as_masses(values, n);
    }

    void masses_at(const std::int64_t* slots, std::int64_t n, double* result) const {
        queue_.visit([&](const auto& queue) {
            const Rows& ring = queue_.ring();
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t last = queue.size_of(slots[i] % ring.lanes) - 1;
                result[i] = rate_ * double(last - queue.behind(ring, slots[i]));
            }
        });
        as_masses(result, n);
    }

    nb::object draw(In<double> u) const {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        require(u.size == 0 || total() > 0, "relive._ring._native.Recency.draw: nothing to draw");
        Out<std::int64_t> slots(u.size);
        Out<double> values(u.size);
        run(u.size, [&] { choose(u.data, u.size, slots.data, values.data); });
        return plan(plans().drawn, slots.array, values.array);
    }

    nb::object masses(In<std::int64_t> slots) const {
        within(slots.data, slots.size, queue_.ring().slots(), "relive._ring._native.Recency.masses: no such slot");
        require(slots.size == 0 || total() > 0, "relive._ring._native.Recency.masses: nothing to draw");
        Out<double> result(slots.size);
        run(slots.size, [&] { masses_at(slots.data, slots.size, result.data); });
        return result.array;
    }

    // What a weight is divided by; see `SumTree::sample`.
    double reference(int scale, const double* values, std::int64_t n) const {
        return scale == 0 ? chosen().smallest(values, n) : scale == 1 ? smallest() : total() / double(queue_.size());
    }

private:
    PyQueue& queue_;
    double given_;
    bool relative_;  // to the items of the fullest lane
    std::int64_t version_ = 0, longest_ = 1, last_ = 0;
    double rate_ = 1.0, first_ = 0.5;  // the mass of the newest item of a lane
    std::vector<double> ends_;         // of the lanes up to each
    nb::object held_;

    template <typename T>
    void sum(const Queue<T>& queue) {
        const std::int64_t lanes = queue_.ring().lanes;
        longest_ = 1;
        last_ = 0;
        for (std::int64_t number = 0; number < lanes; ++number) {
            const std::int64_t items = queue.size_of(number);
            longest_ = std::max(longest_, items);
            if (items) last_ = number;
        }
        rate_ = relative_ ? given_ / double(longest_) : given_;
        ends_.resize(size_t(lanes));
        for (std::int64_t number = 0; number < lanes; ++number)
            ends_[size_t(number)] = rate_ * double(queue.size_of(number));
        chosen().covered(ends_.data(), lanes);
        for (size_t number = 1; number < ends_.size(); ++number) ends_[number] += ends_[number - 1];
        first_ = rate_;
        chosen().covered(&first_, 1);
    }

    void as_masses(double* values, std::int64_t n) const {
        chosen().decay(values, n);
        for (std::int64_t i = 0; i < n; ++i) values[i] *= first_;
    }

    // The first lane whose end lies beyond the target. Lanes have about equal masses, so the target says where to look.
    std::int64_t lane_of(double target) const {
        if (!last_) return 0;
        std::int64_t number = std::min(last_, std::int64_t(target / total() * double(ends_.size())));
        for (int tries = 0; tries < 4; ++tries) {
            if (number && ends_[size_t(number) - 1] > target)
                --number;
            else if (number < last_ && ends_[size_t(number)] <= target)
                ++number;
            else
                return number;
        }
        const auto first = ends_.begin();
        return std::min(last_, std::int64_t(std::upper_bound(first, ends_.end(), target) - first));
    }
};

class Newest : public Chooser {
public:
    Newest(nb::object recency, InOut<double> draws, nb::object settings)
        : recency_(nb::cast<PyRecency&>(recency)),
          weighing_(Weighing::of(settings, draws)),
          held_(nb::make_tuple(recency, draws.object)) {}

    int64_t refresh() override { return recency_.refresh(); }
    bool replacement() const override { return true; }
    bool prioritizes() const override { return false; }
    void prepare(int64_t) override {}
    double begin(const double* beta) override { return weighing_.next(beta); }
    void choose(const double* u, int64_t n, double beta, int64_t* slots, double* values, float* weights) override {
        recency_.choose(u, n, slots, values);
        if (weights) chosen().weights(values, n, recency_.reference(weighing_.scale, values, n), beta, weights);
    }
    bool leaves_masses() const override { return weighing_.scale == 0; }
    void probability(const int64_t* slots, int64_t n, double* result) override {
        recency_.masses_at(slots, n, result);
        probable(result, n);
    }
    bool probable(double* values, int64_t n) override {
        for (int64_t i = 0; i < n; ++i) values[i] /= recency_.total();
        return true;
    }

private:
    PyRecency& recency_;
    Weighing weighing_;
    nb::object held_;
};

}  // namespace relive
