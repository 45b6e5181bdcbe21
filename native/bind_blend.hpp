// Draws of several samplers over one ring, in one batch.
#pragma once

#include <cmath>

#include "bind_tree.hpp"

namespace relive {

class Mixed : public Chooser {
public:
    // `leader`: the member with priorities, -1 where none has them.
    Mixed(nb::list members, In<double> shares, bool shuffle, std::int64_t leader, InOut<double> draws,
          nb::object settings)
        : shares_(shares.data, shares.data + shares.size),
          shuffle_(shuffle),
          weighing_(Weighing::of(settings, draws)),
          held_(nb::make_tuple(nb::tuple(members), draws.object)) {
        for (nb::handle each : members) members_.push_back(&nb::cast<Chooser&>(each));
        const auto count = std::int64_t(members_.size());
        const bool good =
            std::all_of(shares_.begin(), shares_.end(), [](double x) { return x > 0 && std::isfinite(x); });
        require(good && count > 0 && shares.size == count && leader >= -1 && leader < count,
                "relive._ring._native.blending: another number of shares, or one that is not positive");
        if (leader >= 0) leader_ = members_[size_t(leader)];
        items_.resize(members_.size());
    }

    int64_t refresh() override {
        for (size_t k = 0; k < members_.size(); ++k) items_[k] = members_[k]->refresh();
        most_ = *std::max_element(items_.begin(), items_.end());
        return most_;
    }
    bool replacement() const override { return true; }
    bool prioritizes() const override { return leader_; }
    int64_t numbers(int64_t n) const override { return n + 2 + (shuffle_ ? n : 0); }
    void prepare(int64_t n) override {
        for (Chooser* member : members_) member->prepare(n);
        law_.assign(shares_.size(), 0.0);
        counts_.assign(shares_.size(), 0);
        scratch_.resize(size_t(2 * n));
    }
    double begin(const double* beta) override { return weighing_.next(beta); }
    int64_t update(const Updates& updates) override { return leader_ ? leader_->update(updates) : -1; }

    // As `_Blend.draw` in relive.samplers.
    void choose(const double* u, int64_t n, double beta, int64_t* slots, double* values, float* weights) override {
        find_law();
        allot(n, shares_, u[n]);
        int64_t left = 0;
        for (size_t k = 0; k < items_.size(); ++k)
            if (!items_[k]) left += std::exchange(counts_[k], 0);
        if (left) allot(left, law_, u[n + 1]);
        for (int64_t k = 0, from = 0; k < int64_t(members_.size()); from += counts_[size_t(k++)])
            if (const int64_t count = counts_[size_t(k)])
                members_[size_t(k)]->choose(u + from, count, 0.0, slots + from, values + from, nullptr);
        const bool weighed = weights && beta != 0.0;
        if (weighed) mix_chosen(slots, n, values);
        for (int64_t i = shuffle_ ? n - 1 : 0; i > 0; --i) {
            const int64_t j = std::min(i, int64_t(u[n + 2 + i] * double(i + 1)));
            std::swap(slots[i], slots[j]);
            if (weighed) std::swap(values[i], values[j]);
        }
        if (!weighed) {
            if (weights) std::fill_n(weights, n, 1.0f), std::fill_n(values, n, 1.0);
            return;
        }
        const double reference = weighing_.scale ? 1.0 / double(most_) : chosen().smallest(values, n);
        chosen().weights(values, n, reference, beta, weights);
    }

    bool leaves_masses() const override { return weighing_.scale == 0; }
    void probability(const int64_t* slots, int64_t n, double* result) override {
        find_law();
        std::vector<double> scratch(static_cast<size_t>(n));
        mix(slots, n, result, scratch.data());
    }

private:
    std::vector<Chooser*> members_;
    std::vector<double> shares_, law_;  // as given, and among the members that have items
    bool shuffle_;
    Chooser* leader_ = nullptr;
    Weighing weighing_;
    nb::object held_;
    std::vector<int64_t> items_, counts_;
    int64_t most_ = 0;
    std::vector<double> scratch_;

    void find_law() {
        double sum = 0.0;
        for (size_t k = 0; k < items_.size(); ++k) sum += items_[k] ? shares_[k] : 0.0;
        for (size_t k = 0; k < items_.size(); ++k) law_[k] = items_[k] ? shares_[k] / sum : 0.0;
    }

    // Give each member the whole items of its share of `n`; one uniform rounds all of them.
    void allot(int64_t n, const std::vector<double>& shares, double u) {
        size_t last = shares.size() - 1;
        while (shares[last] == 0.0) --last;
        double sum = 0.0;
        for (int64_t k = 0, before = 0; k <= int64_t(last); ++k) {
            sum += shares[size_t(k)];
            const int64_t end = k == int64_t(last) ? n : std::min(n, int64_t(std::floor(double(n) * sum + u)));
            counts_[size_t(k)] += end - before;
            before = end;
        }
    }

    // Put the probabilities of what was just chosen in the place of the members' values.
    void mix_chosen(const int64_t* slots, int64_t n, double* values) {
        double *const result = scratch_.data(), *const part = result + n;
        std::fill_n(result, n, 0.0);
        for (int64_t k = 0, from = 0; k < int64_t(members_.size()); from += counts_[size_t(k++)]) {
            if (!items_[size_t(k)]) continue;
            Chooser& member = *members_[size_t(k)];
            const int64_t count = counts_[size_t(k)], end = from + count;
            std::copy_n(values + from, count, part + from);
            if (!member.probable(part + from, count)) member.probability(slots + from, count, part + from);
            member.probability(slots, from, part);
            member.probability(slots + end, n - end, part + end);
            for (int64_t i = 0; i < n; ++i) result[i] += law_[size_t(k)] * part[i];
        }
        std::copy_n(result, n, values);
    }

    void mix(const int64_t* slots, int64_t n, double* result, double* scratch) {
        std::fill_n(result, n, 0.0);
        for (size_t k = 0; k < members_.size(); ++k) {
            if (!items_[k]) continue;
            members_[k]->probability(slots, n, scratch);
            for (int64_t i = 0; i < n; ++i) result[i] += law_[k] * scratch[i];
        }
    }
};

}  // namespace relive
