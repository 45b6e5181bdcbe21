// Writers and readers of one ring as threads of one process, for ThreadSanitizer, which sees no other process. Each has
// a `Ring` of its own over the same arrays, as each process has. tests/sanitizers.sh compiles and runs it.
//
//     races [SECONDS] [unchecked]
//
// Every row says which step of which lane it is, in all of its bytes. Ends with 0 if every item that the second look
// let through was whole, and of the row that its id names, and if every snapshot of a lane's counters was one that a
// writer without readers shows, too. `unchecked` leaves the second look out, and has to fail. Arrivals and priorities
// are kept in half of the time.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "../../native/changes.hpp"
#include "../../native/gather.hpp"
#include "../../native/priorities.hpp"
#include "../../native/queue.hpp"

namespace relive {
const Kernels& chosen() { std::abort(); }  // trees belong to one process

namespace {

constexpr int64_t LANES = 3, ROWS = 63, BITS = 2, DEPTH = 64, WIDTH = 24, EPISODE = 7, CUT_EVERY = 35;
constexpr int64_t PERIOD = CUT_EVERY + CUT_EVERY / EPISODE + 1;  // rows after which ends and cuts come alike
constexpr size_t TOTAL = LANES * DEPTH;
using Observation = std::array<int64_t, WIDTH>;

// What the processes of a buffer share.
struct Arrays {
    std::vector<int64_t> obs = std::vector<int64_t>((TOTAL + 1) * WIDTH), action = std::vector<int64_t>(TOTAL + 1);
    std::vector<uint8_t> marks = std::vector<uint8_t>(TOTAL);
    std::vector<double> given = std::vector<double>(TOTAL);
    std::array<Lane, LANES> lanes{};
    int64_t any_given = 0, begun = 0, ended = 0;  // the last two: of calls, for the one group of lanes
};

// How a buffer is used: how many steps a lane keeps, and whether priorities are kept beside.
struct Use {
    int64_t kept;
    bool beside;
};

Ring over(Arrays& arrays, Use use) {
    Ring ring;
    ring.lanes = LANES, ring.rows = ROWS, ring.kept = use.kept, ring.depth = DEPTH, ring.bits = BITS, ring.span = 1;
    ring.num_obs = 1;
    ring.marks = arrays.marks.data(), ring.lane_of = arrays.lanes.data();
    ring.touched.begun = &arrays.begun, ring.touched.ended = &arrays.ended, ring.touched.shared = true;
    if (use.beside) {
        ring.given = arrays.given.data(), ring.any_given = &arrays.any_given;
    }
    ring.prepare();
    ring.add_column({reinterpret_cast<char*>(arrays.obs.data()), sizeof(Observation), sizeof(Observation)});
    ring.add_column({reinterpret_cast<char*>(arrays.action.data()), sizeof(int64_t), sizeof(int64_t)});
    return ring;
}

void fill(Observation& out, int64_t lane, int64_t step) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = (step * LANES + lane) * 1000 + int64_t(i);
}

// The row of a step: after every end and every cut one row holds an observation alone.
int64_t row_of(int64_t step) { return step + step / EPISODE + (step + CUT_EVERY - 4) / CUT_EVERY; }

// Calls written(ring) after each call; goes on while that says so.
template <typename Written>
void write(Arrays& arrays, Use use, int64_t lane, Written written) {
    Ring ring = over(arrays, use);
    Observation now, next;
    int64_t id;
    for (int64_t step = 0; written(ring); ++step) {
        fill(now, lane, step);
        fill(next, lane, step + 1);
        const char* values[] = {reinterpret_cast<char*>(now.data()), reinterpret_cast<char*>(&step)};
        const char* nexts[] = {reinterpret_cast<char*>(next.data())};
        const uint8_t ended = step % EPISODE == EPISODE - 1, no = 0;
        const double priority = double(step % 5);
        ring.write({values, nexts, &ended, &no, use.beside && step % 3 == 0 ? &priority : nullptr, &lane, 1, 1}, &id);
        if (id != row_of(step) * LANES + lane) std::abort();
        if (step % CUT_EVERY == 3 && written(ring)) ring.cut(&lane, 1);
    }
}

// The counters of a lane that nobody reads, by its `head`: of its first rows, and of a period behind them.
class Quiet {
public:
    explicit Quiet(Use use) : counted_(FIRST_ROWS + PERIOD) {
        Arrays arrays;
        write(arrays, use, 0, [&](const Ring& ring) {
            const Lane& lane = ring.lane_of[0];
            if (lane.head >= FIRST_ROWS + PERIOD) return false;
            counted_[size_t(lane.head)] = counts(lane);
            return true;
        });
    }

    bool has(const Lane& lane) const {
        const int64_t periods = lane.head < FIRST_ROWS ? 0 : (lane.head - FIRST_ROWS) / PERIOD;
        Counts expected = counted_[size_t(lane.head - periods * PERIOD)];
        expected[0] += periods * CUT_EVERY, expected[1] += periods;
        return counts(lane) == expected;
    }

private:
    static constexpr int64_t FIRST_ROWS = 4 * ROWS;
    using Counts = std::array<int64_t, 4>;
    static Counts counts(const Lane& lane) { return {lane.steps, lane.cuts, lane.stored, lane.drawable}; }
    std::vector<Counts> counted_;
};

// Copies the items at some slots; how many of them are whole but wrong.
class Reader {
public:
    Reader(Arrays& arrays, Use use, bool checks) : ring(over(arrays, use)), quiet_(use), checks_(checks) {}

    // How many lanes are shown with counters that do not belong together.
    int64_t count() {
        int64_t wrong = 0;
        for (int64_t number = 0; number < LANES; ++number) {
            std::array<int64_t, COUNTERS> counters;
            ring.snapshot(number, counters.data());
            Lane lane;
            std::memcpy(&lane, counters.data(), sizeof lane);
            // A writer that is long kept from going on is not waited for.
            wrong += lane.memory == lane.head % DEPTH && !quiet_.has(lane);
        }
        return wrong;
    }

    int64_t read(const std::vector<int64_t>& slots) {
        const int64_t n = int64_t(slots.size());
        if (!n) return 0;
        const auto room = size_t(n);
        std::vector<int64_t> ids(room), at(room), after(room), action(room);
        std::vector<int32_t> steps(room);
        std::vector<float> discount(room);
        std::vector<uint8_t> terminated(room), truncated(room), bad(room);
        std::vector<Observation> obs(room), next(room);
        const float powers[] = {1.0f, 0.5f};
        ring.windows(
            slots.data(), n, 1, powers,
            {ids.data(), at.data(), after.data(), steps.data(), discount.data(), terminated.data(), truncated.data()});
        const auto job = [](const Column& column, void* to, const std::vector<int64_t>& rows) {
            return Job{column.data, static_cast<char*>(to), rows.data(), column.row, column.stride};
        };
        const Job jobs[] = {job(ring.columns[0], obs.data(), at), job(ring.columns[0], next.data(), after),
                            job(ring.columns[1], action.data(), at)};
        gather(jobs, 3, nullptr, 0, n);
        if (checks_) ring.overtaken(ready, ids.data(), n, bad.data());
        int64_t wrong = 0;
        for (size_t i = 0; i < room; ++i) {
            if (bad[i]) continue;
            ++seen;
            const int64_t lane = ids[i] % LANES;
            Observation before, behind;
            fill(before, lane, action[i]);
            fill(behind, lane, action[i] + 1);
            const bool ended = action[i] % EPISODE == EPISODE - 1;
            wrong += ids[i] != row_of(action[i]) * LANES + lane || obs[i] != before || next[i] != behind ||
                     terminated[i] != ended || discount[i] != (ended ? 0.0f : 0.5f);
        }
        return wrong;
    }

    Ring ring;
    Ready ready;
    int64_t seen = 0;

private:
    Quiet quiet_;
    bool checks_;
};

// Draws from a queue of anchors, as `Uniform` does.
void draw_uniformly(Reader& reader, const std::atomic<bool>& stop, int64_t& wrong) {
    std::vector<int32_t> places(LANES * ROWS);
    std::array<Ends, LANES> ends{};
    std::array<Seen, LANES> seen{};
    Queue<int32_t> queue;
    queue.places = places.data(), queue.ends = ends.data(), queue.seen = seen.data();
    uint64_t state = 1;
    while (!stop.load(std::memory_order_relaxed)) {
        reader.ring.look(reader.ready);
        if (!queue.refresh(reader.ring)) continue;
        std::array<double, 16> u;
        for (double& each : u)
            each = double((state = state * 6364136223846793005u + 1442695040888963407u) >> 11) * 0x1p-53;
        std::vector<int64_t> slots(u.size());
        queue.draw(reader.ring, u.data(), int64_t(u.size()), slots.data());
        wrong += reader.read(slots) + reader.count();
    }
}

// Takes in what came, with its priorities, as samplers do that keep these; reads it.
void follow(Reader& reader, const std::atomic<bool>& stop, int64_t& wrong) {
    std::array<Seen, LANES> seen{};
    News news;
    double largest = 0.0;
    while (!stop.load(std::memory_order_relaxed)) {
        reader.ring.look(reader.ready);
        news.gather(reader.ring, seen.data(), nullptr, largest, 1.0);
        largest = news.largest;
        for (size_t i = 0; i < news.come.size(); ++i)
            if (const double value = news.values[news.same ? 0 : i]; !(value >= 0.0 && value <= 4.0)) ++wrong;
        wrong += reader.read(news.come);
        news.settle(seen.data());
    }
}

bool hunt(double seconds, bool checks, Use use) {
    Arrays arrays;
    std::atomic<bool> stop = false;
    Reader one(arrays, use, checks), other(arrays, use, checks);
    int64_t wrong[2] = {};
    std::vector<std::thread> threads;
    for (int64_t lane = 0; lane < LANES; ++lane) {
        const auto go_on = [&](const Ring&) { return !stop.load(std::memory_order_relaxed); };
        threads.emplace_back([&, lane, go_on] { write(arrays, use, lane, go_on); });
    }
    threads.emplace_back([&] { draw_uniformly(one, stop, wrong[0]); });
    threads.emplace_back([&] { follow(other, stop, wrong[1]); });
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop = true;
    for (std::thread& thread : threads) thread.join();
    int64_t added = 0;
    for (const Lane& lane : arrays.lanes) added += lane.steps;
    std::printf("%lld steps added, %lld and %lld items read, %lld and %lld of them wrong\n", (long long)added,
                (long long)one.seen, (long long)other.seen, (long long)wrong[0], (long long)wrong[1]);
    return wrong[0] + wrong[1] == 0 && one.seen >= 1000 && other.seen >= 1000;
}

}  // namespace
}  // namespace relive

int main(int count, char** words) {
    bool checks = true;
    double seconds = 5;
    for (int i = 1; i < count; ++i) {
        if (std::string(words[i]) == "unchecked")
            checks = false;
        else
            seconds = std::atof(words[i]);
    }
    // Where a lane keeps as many steps as it has rows, they leave with these; where it keeps fewer, before.
    bool right = true;
    for (const bool beside : {true, false})
        for (const int64_t kept : {relive::ROWS, relive::ROWS / 2})
            right &= relive::hunt(seconds / 4, checks, {kept, beside});
    return !right;
}
