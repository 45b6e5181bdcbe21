// How often each lane was written to, by groups, so that a reader looks only at lanes where something happened since it
// last did.
#pragma once

#include <algorithm>
#include <vector>

#include "lanes.hpp"

namespace relive {

// Neighbouring lanes whose writes are counted together.
constexpr int NEIGHBOURS = 6;  // as a power of two

struct Group {
    int64_t number;
    int64_t first, last;  // its lanes are [first, last)
};

// Calls that began to write to a lane of each group, and those that came to their end. Both are counted in memory that
// all writers have. Where one call began more than have ended, a writer is at work, or was killed.
class Touched {
public:
    const uint64_t id = another();
    int64_t *begun = nullptr, *ended = nullptr;  // of each group; null: nothing is counted, any lane may have changed
    bool shared = false;                         // other processes count here, too

    static int64_t groups_of(int64_t lanes) { return (lanes + (int64_t(1) << NEIGHBOURS) - 1) >> NEIGHBOURS; }
    static Group group(int64_t number, int64_t lanes) {
        const int64_t first = number << NEIGHBOURS;
        return {number, first, std::min(first + (int64_t(1) << NEIGHBOURS), lanes)};
    }

    // Calls body(group) for the groups of some lanes; `numbers` null: of the first `n`.
    template <typename Body>
    static void each_group(const int64_t* numbers, int64_t n, Body body) {
        if (!numbers) {
            for (int64_t group = 0; group < groups_of(n); ++group) body(group);
            return;
        }
        int64_t last = -1;
        for (int64_t i = 0; i < n; ++i)
            if (const int64_t group = numbers[i] >> NEIGHBOURS; group != last) body(last = group);
    }

    // A call that writes to these lanes as long as this lives; `numbers` null: to the first `n`.
    class Call {
    public:
        Call(const Touched& touched, const int64_t* numbers, int64_t n) : touched_(touched), numbers_(numbers), n_(n) {
            touched_.count(touched_.begun, numbers_, n_);
            std::atomic_thread_fence(
                std::memory_order_release);  // a reader that sees a change sees that the call began
        }
        Call(const Call&) = delete;
        ~Call() { touched_.count(touched_.ended, numbers_, n_); }

    private:
        const Touched& touched_;
        const int64_t* const numbers_;
        const int64_t n_;
    };

private:
    static uint64_t another() {
        static std::atomic<uint64_t> made{0};
        return ++made;
    }

    void count(int64_t* counts, const int64_t* numbers, int64_t n) const {
        if (counts) each_group(numbers, n, [&](int64_t group) { add(counts[group]); });
    }

    void add(int64_t& count) const {
        if (shared)
            std::atomic_ref(count).fetch_add(1, std::memory_order_release);
        else
            publish(count, int64_t(uint64_t(count) + 1));
    }
};

// What one reader has looked at.
class Known {
public:
    // The groups in which something may have happened since `settle` was last called.
    const std::vector<Group>& changed(const Touched& touched, int64_t lanes) {
        const auto groups = size_t(Touched::groups_of(lanes));
        if (of_ != touched.id || counts_.size() != groups) {
            counts_.assign(groups, NEVER);
            found_.reserve(groups);
            found_counts_.reserve(groups);
            of_ = touched.id;
        }
        found_.clear();
        found_counts_.clear();
        // Only where no other process counts meanwhile may so many be compared at once.
        if (touched.begun && !touched.shared && std::equal(counts_.begin(), counts_.end(), touched.begun) &&
            std::equal(counts_.begin(), counts_.end(), touched.ended))
            return found_;
        for (size_t g = 0; g < groups; ++g) {
            int64_t count = NEVER;
            if (touched.begun) {
                const int64_t ended = observe(touched.ended[g]), begun = observe(touched.begun[g]);  // in this order
                if (begun == ended) count = begun;
                if (count == counts_[g] && count != NEVER) continue;
            }
            found_.push_back(Touched::group(int64_t(g), lanes));
            found_counts_.push_back(count);
        }
        return found_;
    }

    // The reader has taken in what it found in these groups.
    void settle() {
        for (size_t i = 0; i < found_.size(); ++i) counts_[size_t(found_[i].number)] = found_counts_[i];
    }

    // The reader has left something in a group that `changed` found: the next look is at it again.
    void revisit(const Group& group) { found_counts_[size_t(&group - found_.data())] = NEVER; }

    // The next look is at all lanes.
    void forget() { of_ = 0; }

private:
    static constexpr int64_t NEVER = -1;
    uint64_t of_ = 0;
    std::vector<int64_t> counts_;  // of calls that had ended, and none was at work, at the look before last
    std::vector<Group> found_;
    std::vector<int64_t> found_counts_;
};

// What `Rows::look` noted of rows that other processes write.
struct Ready {
    std::vector<int64_t> rows;   // of each lane the first that was not ready at the last look; of none before it
    std::vector<int64_t> taken;  // of each lane the first that the sampler had not taken in when it last did
    int64_t came = 0;            // rows between the two, of all lanes
    bool outrun = false;         // writers added more rows in a draw than it took in, and some of them still wait
    Known known;

    // The sampler took in all rows up to the last look.
    void settle() {
        if (came) taken = rows;
        came = 0;
        outrun = false;
    }
};

}  // namespace relive
