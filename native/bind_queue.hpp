// The queue of anchors, bound to arrays that Python owns.
#pragma once

#include "bind_tree.hpp"

namespace relive {

// The queue over arrays of int32 or int64, as the capacity asks for.
class PyQueue {
public:
    PyQueue(nb::handle_t<PyRing> ring, nb::object places, nb::object firsts, InOut<std::int64_t, 2> ends,
            InOut<std::int64_t, 2> seen)
        : ring_(nb::cast<const PyRing&>(ring)),
          narrow_(is_array<std::int32_t, 2>(places)),
          held_(nb::make_tuple(ring, places, firsts, ends.object, seen.object)) {
        require(ends.shape[0] == ring_.ring.lanes && ends.shape[1] == 4,
                "relive._ring._native.Queue: `ends` is not `[L, 4]`");
        auto* lanes = reinterpret_cast<Ends*>(ends.data);
        Seen* looked = seen_of(ring_, seen);
        if (narrow_)
            fill(narrow_queue_, places, firsts, lanes, looked);
        else
            fill(wide_queue_, places, firsts, lanes, looked);
    }

    const Rows& ring() const { return ring_.ring; }
    std::int64_t size() const {
        std::int64_t size = 0;
        visit([&](const auto& queue) { size = queue.size(); });
        return size;
    }

    std::int64_t refresh() {
        std::int64_t size = 0;
        visit([&](auto& queue) { size = queue.refresh(ring_.ring); });
        return size;
    }

    nb::object draw(In<double> u) const {
        return drawn(u, [&](const auto& queue, int64_t* slots) { queue.draw(ring_.ring, u.data, u.size, slots); });
    }

    nb::object draw_distinct(In<double> u) const {
        require(u.size <= size(), "relive._ring._native.Queue.draw_distinct: more than there are");
        return drawn(
            u, [&](const auto& queue, int64_t* slots) { queue.draw_distinct(ring_.ring, u.data, u.size, slots); });
    }

    nb::object draw_episodes(In<double> u) const {
        bool follows = false;
        visit([&](const auto& queue) { follows = queue.firsts; });
        require(follows, "relive._ring._native.Queue.draw_episodes: episodes are not followed");
        return drawn(
            u, [&](const auto& queue, int64_t* slots) { queue.draw_episodes(ring_.ring, u.data, u.size, slots); });
    }

    nb::object behind(In<std::int64_t> slots) const {
        Out<std::int64_t> found(checked(slots));
        run(slots.size, [&] {
            visit([&](const auto& queue) {
                for (std::int64_t i = 0; i < slots.size; ++i) found.data[i] = queue.behind(ring(), slots.data[i]);
            });
        });
        return found.array;
    }

    // Of items, in a draw of one, with or without replacement.
    nb::object probability(In<std::int64_t> slots) const {
        Out<double> found(checked(slots));
        run(slots.size, [&] { chances(slots.data, slots.size, found.data); });
        return found.array;
    }

    void chances(const std::int64_t* slots, std::int64_t n, double* result) const {
        visit([&](const auto& queue) {
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t alike =
                    queue.firsts ? queue.episodes() * queue.episode_size(ring(), slots[i]) : queue.size();
                result[i] = 1.0 / double(alike);
            }
        });
    }

    // Choose n slots by uniforms; of a queue that is not empty, and holds as many.
    void choose(const double* u, int64_t n, bool replacement, int64_t* slots) const {
        visit([&](const auto& queue) {
            if (queue.firsts)
                queue.draw_episodes(ring_.ring, u, n, slots);
            else if (replacement)
                queue.draw(ring_.ring, u, n, slots);
            else
                queue.draw_distinct(ring_.ring, u, n, slots);
        });
    }

    template <typename Visitor>
    void visit(Visitor&& visitor) {
        narrow_ ? visitor(narrow_queue_) : visitor(wide_queue_);
    }
    template <typename Visitor>
    void visit(Visitor&& visitor) const {
        narrow_ ? visitor(narrow_queue_) : visitor(wide_queue_);
    }

private:
    static constexpr const char* WRONG = "relive._ring._native.Queue: arrays that no queue has";
    const PyRing& ring_;
    bool narrow_;
    Queue<std::int32_t> narrow_queue_;
    Queue<std::int64_t> wide_queue_;
    nb::object held_;  // the ring and the arrays; nanobind's `keep_alive` aborts where there is no memory for it

    std::int64_t checked(const In<std::int64_t>& slots) const {
        within(slots.data, slots.size, ring().slots(), "relive._ring._native.Queue: no such slot");
        require(slots.size == 0 || size() > 0, "relive._ring._native.Queue: it is empty");
        return slots.size;
    }

    template <typename T>
    void fill(Queue<T>& queue, nb::handle places, nb::handle firsts, Ends* ends, Seen* seen) {
        queue.places = numbers<T>(places);
        queue.firsts = firsts.is_none() ? nullptr : numbers<T>(firsts);
        queue.ends = ends;
        queue.seen = seen;
        require(sound_seen(ring_.ring, seen) && sound_queues(ring_.ring, queue), WRONG);
    }

    template <typename T>
    T* numbers(nb::handle array) const {
        const auto given = taken<InOut<T, 2>>(array, WRONG);
        require(given.shape[0] == ring_.ring.lanes && given.shape[1] == ring_.ring.rows, WRONG);
        return given.data;
    }

    template <typename Draw>
    nb::object drawn(const In<double>& u, Draw&& draw) const {
        require(all_uniforms(u.data, u.size), NO_UNIFORM);
        visit([&](const auto& queue) {
            require(u.size == 0 || queue.size() > 0, "relive._ring._native.Queue: it is empty");
        });
        Out<std::int64_t> slots(u.size);
        run(u.size, [&] { visit([&](const auto& queue) { draw(queue, slots.data); }); });
        return slots.array;
    }
};

}  // namespace relive
