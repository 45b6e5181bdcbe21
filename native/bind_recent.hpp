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

    // Choose slots by uniforms; `values` becomes what `as_masses` takes.
    void choose(const double* u, std::int64_t n, std::int64_t* slots, double* values) const {
        const double sum = total(), mean = 1.0 / rate_;
        for (std::int64_t i = 0; i < n; ++i) values[i] = u[i] * sum;
        std::fill_n(slots, n, 0);
        for (std::int64_t i = 0; i < (last_ ? n : 0); ++i) {
            slots[i] = lane_of(values[i]);
            if (slots[i]) values[i] -= ends_[size_t(slots[i]) - 1];
        }
        chosen().reached(values, n);
        queue_.visit([&](const auto& queue) {
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t last = queue.size_of(slots[i]) - 1;
                const double steps = values[i] * mean;
                const std::int64_t age = steps < double(last) ? std::int64_t(steps) : last;
                values[i] = double(age);
                queue.fetch(queue_.ring(), slots[i], last - age);
            }
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t last = queue.size_of(slots[i]) - 1;
                slots[i] = queue.slot_of(queue_.ring(), slots[i], last - std::int64_t(values[i]));
                values[i] *= rate_;
            }
        });
    }

    // Turn rates times ages into masses.
    void as_masses(double* values, std::int64_t n) const {
        chosen().decay(values, n);
        for (std::int64_t i = 0; i < n; ++i) values[i] *= first_;
    }

    // Find what `as_masses` takes, of items at slots.
    void ages_at(const std::int64_t* slots, std::int64_t n, double* result) const {
        queue_.visit([&](const auto& queue) {
            const Rows& ring = queue_.ring();
            for (std::int64_t i = 0; i < n; ++i) {
                std::int64_t row, number;
                ring.split(slots[i], row, number);
                result[i] = rate_ * double(queue.size_of(number) - 1 - queue.behind(ring, number, row));
            }
        });
    }

    nb::object draw(In<double> u) const {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        require(u.size == 0 || total() > 0, "relive._ring._native.Recency.draw: nothing to draw");
        Out<std::int64_t> slots(u.size);
        Out<double> values(u.size);
        run(u.size, [&] {
            choose(u.data, u.size, slots.data, values.data);
            as_masses(values.data, u.size);
        });
        return plan(plans().drawn, slots.array, values.array);
    }

    nb::object masses(In<std::int64_t> slots) const {
        within(slots.data, slots.size, queue_.ring().slots(), "relive._ring._native.Recency.masses: no such slot");
        require(slots.size == 0 || total() > 0, "relive._ring._native.Recency.masses: nothing to draw");
        Out<double> result(slots.size);
        run(slots.size, [&] {
            ages_at(slots.data, slots.size, result.data);
            as_masses(result.data, slots.size);
        });
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
    std::vector<std::int64_t> sizes_;  // items of each lane, when these were summed
    nb::object held_;

    template <typename T>
    void sum(const Queue<T>& queue) {
        // Of a full buffer most often no lane has more items than before.
        const auto lanes = size_t(queue_.ring().lanes);
        bool same = sizes_.size() == lanes;
        sizes_.resize(lanes);
        for (size_t number = 0; number < lanes; ++number) {
            const std::int64_t items = queue.size_of(std::int64_t(number));
            same &= sizes_[number] == items;
            sizes_[number] = items;
        }
        if (same) return;
        longest_ = 1;
        last_ = 0;
        for (size_t number = 0; number < lanes; ++number) {
            longest_ = std::max(longest_, sizes_[number]);
            if (sizes_[number]) last_ = std::int64_t(number);
        }
        rate_ = relative_ ? given_ / double(longest_) : given_;
        ends_.resize(lanes);
        for (size_t number = 0; number < lanes; ++number) ends_[number] = rate_ * double(sizes_[number]);
        chosen().covered(ends_.data(), std::int64_t(lanes));
        for (size_t number = 1; number < lanes; ++number) ends_[number] += ends_[number - 1];
        first_ = rate_;
        chosen().covered(&first_, 1);
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
        if (!weights) return;
        if (beta == 0.0) {
            std::fill_n(weights, n, 1.0f);
            return;
        }
        recency_.as_masses(values, n);
        chosen().weights(values, n, recency_.reference(weighing_.scale, values, n), beta, weights);
    }
    bool leaves_masses() const override { return weighing_.scale == 0; }
    void probability(const int64_t* slots, int64_t n, double* result) override {
        recency_.ages_at(slots, n, result);
        probable(result, n);
    }
    bool probable(double* values, int64_t n) override {
        recency_.as_masses(values, n);
        for (int64_t i = 0; i < n; ++i) values[i] /= recency_.total();
        return true;
    }

private:
    PyRecency& recency_;
    Weighing weighing_;
    nb::object held_;
};

}  // namespace relive
