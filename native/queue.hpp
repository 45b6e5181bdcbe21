// The anchors of every lane in the order of their rows, and where among them episodes begin: what uniform draws need.
// Anchors come at a lane's end and go at its beginning, so two counters a lane say which of them are there. What is
// drawn depends on these alone, not on when the queue was refreshed.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "changes.hpp"
#include "lane_sums.hpp"

namespace relive {

// One lane's counters: anchors that ever came and went, episodes that ever came and went.
struct Ends {
    int64_t gone, come, episodes_gone, episodes_come;
};

// T is int32 or int64. `places` and `firsts` have R entries of each lane: entry k stands at k % R. Entries are rows
// modulo R; a first is the number, modulo R, of the anchor that an episode begins with. The entries of a lane lie
// together in `firsts`, those of all lanes at one place in `places`: lanes in lock step write to few lines.
template <typename T>
class Queue {
public:
    T *places = nullptr, *firsts = nullptr;  // firsts: null where episodes do not matter
    Ends* ends = nullptr;
    Seen* seen = nullptr;

    // Take in what changed; how many anchors there are.
    int64_t refresh(const Rows& ring) {
        const std::vector<Group>& groups = known_.changed(ring.touched, ring.lanes);
        if (groups.empty()) return size();
        bases_.resize(size_t(ring.lanes));
        bases_of_.resize(size_t(ring.lanes), -1);
        stretches_.resize(size_t(ring.lanes));
        anchors_.prepare(ring.lanes);
        episodes_.prepare(ring.lanes);
        for (const Group& group : groups) {
            bool waits = false;
            for (int64_t number = group.first; number < group.last; ++number) waits |= take_in(ring, number);
            if (waits) known_.revisit(group);
            anchors_.sum(group, [this](int64_t number) { return ends[number].come - ends[number].gone; });
            if (!firsts) continue;
            episodes_.sum(group,
                          [this](int64_t number) { return ends[number].episodes_come - ends[number].episodes_gone; });
        }
        anchors_.sum_groups();
        episodes_.sum_groups();
        known_.settle();
        ++version_;
        return size();
    }

    int64_t size() const { return anchors_.total(); }
    int64_t size_of(int64_t number) const { return ends[number].come - ends[number].gone; }
    // Another number after every refresh that looked at a lane.
    int64_t version() const { return version_; }

    // The slot of the anchor that is `behind` the oldest of its lane.
    int64_t slot_of(const Rows& ring, int64_t number, int64_t behind) const {
        return int64_t(place_of(ring, number, behind)) * ring.lanes + number;
    }
    // To be called some time before: then the misses of several items overlap.
    void fetch(const Rows& ring, int64_t number, int64_t behind) const {
        RELIVE_PREFETCH(&place_of(ring, number, behind));
    }

    int64_t behind(const Rows& ring, int64_t slot) const { return behind(ring, slot % ring.lanes, slot / ring.lanes); }

    // How many anchors of a lane are older than the one at a row of its slots. Anchors lie about evenly, so the row
    // says where to look.
    int64_t behind(const Rows& ring, int64_t number, int64_t row) const {
        const int64_t last = size_of(number) - 1;
        if (last < 1) return 0;
        const auto [oldest, span] = stretches_[size_t(number)];
        const auto ahead = [&, oldest = oldest](int64_t row) { return row - oldest + (row < oldest ? ring.rows : 0); };
        const auto ahead_at = [&](int64_t k) { return ahead(place_of(ring, number, k)); };
        const int64_t wanted = ahead(row);
        if (span == last) return std::min(wanted, last);  // each row has one
        const auto before = [&](int64_t k) { return ahead_at(k) < wanted; };
        const double density = double(last) / double(span);
        int64_t low = std::min(last, int64_t(double(wanted) * density));
        for (int tries = 0; tries < 3; ++tries) {
            const int64_t missing = wanted - ahead_at(low);
            if (!missing) return low;
            low = std::clamp<int64_t>(low + int64_t(double(missing) * density), 0, last);
        }
        int64_t high = low, step = 1;
        for (; high < last && before(high); step *= 2) low = high, high = std::min(last, high + step);
        for (step = 1; low > 0 && !before(low); step *= 2) high = low, low = std::max<int64_t>(0, low - step);
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (before(middle))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    void draw(const Rows& ring, const double* u, int64_t n, int64_t* slot) const {
        if (!n) return;
        const int64_t total = size(), rows = ring.rows, base = bases_[0];
        const double count = double(total);
        if (ring.lanes == 1) {
            // The loads are independent of each other, so the processor overlaps their misses by itself.
            for (int64_t i = 0; i < n; ++i) {
                const int64_t k = base + whole(u[i], count, total);
                slot[i] = places[wrapped(k, rows)];
            }
            return;
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t k = whole(u[i], count, total), number = anchors_.lane_of(k);
            slot[i] = slot_of(ring, number, k - anchors_.before(number));
        }
    }

    // Different anchors: the first steps of a Fisher-Yates shuffle of all of them, of which only what moved is kept.
    void draw_distinct(const Rows& ring, const double* u, int64_t n, int64_t* slot) const {
        const int64_t total = size();
        Shuffled shuffled(n);
        for (int64_t i = 0; i < n; ++i) {
            const int64_t k = shuffled.take(i, i + whole(u[i], double(total - i), total - i));
            const int64_t number = anchors_.lane_of(k);
            slot[i] = slot_of(ring, number, k - anchors_.before(number));
        }
    }

    // The whole part of a uniform, stretched over the episodes, names one of them; the rest an anchor in it.
    void draw_episodes(const Rows& ring, const double* u, int64_t n, int64_t* slot) const {
        const int64_t total = episodes_.total();
        for (int64_t i = 0; i < n; ++i) {
            const double stretched = u[i] * double(total);
            const int64_t k = whole(u[i], double(total), total), number = episodes_.lane_of(k);
            const Ends& lane = ends[number];
            const int64_t episode = lane.episodes_gone + k - episodes_.before(number);
            const int64_t first = episode == lane.episodes_gone ? 0 : first_of(ring, number, episode);
            const int64_t last =
                episode + 1 == lane.episodes_come ? lane.come - lane.gone : first_of(ring, number, episode + 1);
            const int64_t count = last - first;
            slot[i] = slot_of(ring, number, first + whole(stretched - double(k), double(count), count));
        }
    }

    // How many anchors the episode of the one at a slot has.
    int64_t episode_size(const Rows& ring, int64_t slot) const {
        const int64_t number = slot % ring.lanes, k = behind(ring, slot);
        const Ends& lane = ends[number];
        int64_t low = lane.episodes_gone + 1, high = lane.episodes_come;  // the first episode that begins behind it
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (first_of(ring, number, middle) <= k)
                low = middle + 1;
            else
                high = middle;
        }
        const int64_t end = low == lane.episodes_come ? lane.come - lane.gone : first_of(ring, number, low);
        return end - (low - 1 == lane.episodes_gone ? 0 : first_of(ring, number, low - 1));
    }
    int64_t episodes() const { return episodes_.total(); }

private:
    Known known_;
    LaneSums anchors_, episodes_;
    int64_t version_ = 0;
    std::vector<int64_t> bases_;     // where in `places` the oldest anchor of each lane stands
    std::vector<int64_t> bases_of_;  // and how many had gone then; another number: somebody changed `ends`
    // The row, modulo R, of the oldest anchor of each lane that has one, and how many rows later the newest one is.
    struct Stretch {
        int64_t oldest, span;
    };
    std::vector<Stretch> stretches_;

    T& place_at(const Rows& ring, int64_t number, int64_t at) const { return places[at * ring.lanes + number]; }
    T& place_of(const Rows& ring, int64_t number, int64_t behind) const {
        return place_at(ring, number, wrapped(bases_[size_t(number)] + behind, ring.rows));
    }

    // Note where a lane's oldest and newest anchors are; `oldest`: of the first, -1 where it has to be read.
    void stretch(const Rows& ring, int64_t number, int64_t oldest) {
        if (!size_of(number)) return;
        if (oldest < 0) oldest = place_of(ring, number, 0);
        const int64_t span = place_of(ring, number, size_of(number) - 1) - oldest;
        stretches_[size_t(number)] = {oldest, span < 0 ? span + ring.rows : span};
    }

    // Whether more waits.
    bool take_in(const Rows& ring, int64_t number) {
        RELIVE_PREFETCH(ring.lane_of + std::min(number + 8, ring.lanes - 1));
        Seen& before = seen[number];
        bool waits = false;
        const Seen now = look(ring, number, before, waits);
        if (!plausible(ring, before, now)) throw std::invalid_argument("relive._ring._native: `seen` was never seen");
        int64_t &base = bases_[size_t(number)], &of = bases_of_[size_t(number)];
        if (of != ends[number].gone) {
            base = ends[number].gone % ring.rows;
            stretch(ring, number, -1);
        }
        if (now.ready != before.ready || now.oldest != before.oldest) move(ring, number, before, now, base);
        of = ends[number].gone;
        before = now;
        return waits;
    }

    static int64_t whole(double u, double count, int64_t most) {
        const auto k = int64_t(u * count);
        return k < most - 1 ? k : most - 1;
    }

    // A place below twice as many as there are, modulo these: no branch, since half of a full queue's places wrap.
    static int64_t wrapped(int64_t k, int64_t rows) { return k - (~((k - rows) >> 63) & rows); }

    // How far behind the oldest anchor a later episode than the oldest begins.
    int64_t first_of(const Rows& ring, int64_t number, int64_t episode) const {
        const int64_t ahead = firsts[number * ring.rows + episode % ring.rows] - ends[number].gone % ring.rows;
        return ahead < 0 ? ahead + ring.rows : ahead;
    }

    void move(const Rows& ring, int64_t number, const Seen& before, const Seen& now, int64_t& oldest) {
        const int64_t rows = ring.rows;
        Ends& lane = ends[number];
        int64_t end = wrapped(oldest + lane.come - lane.gone, rows);
        // A later lane is most often as far as this one.
        const int64_t later = std::min(number + 64, ring.lanes - 1);
        const bool whole = lane.come - lane.gone == before.ready - before.oldest;  // each row is an anchor
        if (!whole) RELIVE_PREFETCH_WRITE(&place_at(ring, later, oldest));
        RELIVE_PREFETCH_WRITE(&place_at(ring, later, end));
        const Position at = ring.position(number, now.head);
        const int64_t lost = now.oldest - before.oldest, base = ring.lane_slot_of(at, before.oldest);
        int64_t gone = lane.gone;
        if (whole) {  // no place need be read
            gone += std::min(lost, lane.come - gone);
            oldest = wrapped(oldest + gone - lane.gone, rows);
        }
        while (gone < lane.come && gone - lane.gone < lost) {
            const int64_t ahead = place_at(ring, number, oldest) - base;
            if ((ahead < 0 ? ahead + rows : ahead) >= lost) break;
            ++gone;
            if (++oldest == rows) oldest = 0;
        }
        if (firsts) forget_episodes(ring, number, gone);
        int64_t first = gone == lane.gone ? stretches_[size_t(number)].oldest : -1;
        if (whole) first = ring.lane_slot_of(at, now.oldest);
        if (gone == lane.come) first = -1;
        lane.gone = gone;
        const Moved range(ring, number, before, now);
        int64_t lane_slot = ring.lane_slot_of(at, range.come_from);
        for (int64_t row = range.come_from; row < range.come_to; ++row) {
            const int64_t here = ring.storage_row(number, ring.memory_of(at, row));
            if ((ring.mark_at(here) & ANCHOR) == ANCHOR) {
                if (firsts && !goes_on(ring, here, place_at(ring, number, (end ? end : rows) - 1), lane_slot, lane))
                    firsts[number * rows + lane.episodes_come++ % rows] = T(end);
                place_at(ring, number, end) = T(lane_slot);
                ++lane.come;
                if (++end == rows) end = 0;
            }
            if (++lane_slot == rows) lane_slot = 0;
        }
        stretch(ring, number, first);
    }

    // Whether an anchor belongs to the episode of the one before: that stands `starts` steps before it in one stream.
    static bool goes_on(const Rows& ring, int64_t row, int64_t before, int64_t lane_slot, const Ends& lane) {
        return lane.come > lane.gone && before == (lane_slot + ring.rows - ring.starts % ring.rows) % ring.rows &&
               !ring.begins_since(row, ring.starts);
    }

    // Episodes whose last anchor went: all anchors before `gone`, which is not in `ends` yet.
    void forget_episodes(const Rows& ring, int64_t number, int64_t gone) const {
        Ends& lane = ends[number];
        if (gone == lane.come) {
            lane.episodes_gone = lane.episodes_come;
            return;
        }
        while (lane.episodes_gone + 1 < lane.episodes_come &&
               first_of(ring, number, lane.episodes_gone + 1) <= gone - lane.gone)
            ++lane.episodes_gone;
    }

    // A shuffle of which only the numbers that moved are written down, in a table of open addresses.
    class Shuffled {
    public:
        explicit Shuffled(int64_t n) {
            size_t size = 16;
            while (size < size_t(n) * 2) size *= 2;
            keys_.assign(size, -1);
            values_.resize(size);
        }
        // The value at j, which the value at i replaces.
        int64_t take(int64_t i, int64_t j) {
            const int64_t at_i = get(i), at_j = get(j);
            put(j, at_i);
            return at_j;
        }

    private:
        std::vector<int64_t> keys_, values_;
        size_t find(int64_t key) const {
            const size_t mask = keys_.size() - 1;
            size_t at = size_t(uint64_t(key) * 0x9E3779B97F4A7C15u >> 20) & mask;
            while (keys_[at] >= 0 && keys_[at] != key) at = (at + 1) & mask;
            return at;
        }
        int64_t get(int64_t key) const {
            const size_t at = find(key);
            return keys_[at] == key ? values_[at] : key;
        }
        void put(int64_t key, int64_t value) {
            const size_t at = find(key);
            keys_[at] = key;
            values_[at] = value;
        }
    };
};

}  // namespace relive
