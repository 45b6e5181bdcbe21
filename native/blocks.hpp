// Memory that is used again as soon as no array refers to it any more; relive._base.memory has the same in Python.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "numpy_api.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace relive {

// What is lent begins with a page, so that all arrays of a batch reach the end of a line at the same row. Of a block
// that is used again the newest comes first: it is in the caches. Together with what is lent, free blocks take no more
// bytes than were lent at once lately, or SPARE, and those that no draw has used lately go back to the system.
class Blocks : public std::enable_shared_from_this<Blocks> {
public:
    explicit Blocks(size_t keep) : keep_(keep) { free_.reserve(keep + 1); }

    // A draw begins, which may need no block.
    void next_draw() {
        // Draws of threads at once may count as one.
        const uint64_t draws = draws_.load(std::memory_order_relaxed) + 1;
        draws_.store(draws, std::memory_order_relaxed);
        if (draws % LATELY == 0) next_turn();
    }

    // An owner of `bytes` at `data`, until it is dropped.
    nb::object lend(size_t bytes, char*& data) {
        auto lease = std::make_unique<Lease>(shared_from_this());
        lease->block = take(bytes);
        data = lease->block.get();
        nb::object owner = nb::steal(PyCapsule_New(data, nullptr, end));
        if (!owner.is_valid() || PyCapsule_SetContext(owner.ptr(), lease.get())) nb::raise_python_error();
        lease.release();
        return owner;
    }

private:
    static constexpr size_t PAGE = 4 << 10, HUGE_PAGE = 2 << 20, SPARE = 64 << 20;
    static constexpr uint64_t LATELY = 64;  // draws

    struct Release {
        size_t bytes;
        void operator()(char* block) const {
#if defined(__linux__)
            if (bytes >= HUGE_PAGE) {
                munmap(block, bytes);
                return;
            }
#endif
            ::operator delete(block, std::align_val_t(PAGE));
        }
    };
    using Block = std::unique_ptr<char, Release>;
    struct Lease {
        std::shared_ptr<Blocks> from;
        Block block{nullptr, {0}};
        explicit Lease(std::shared_ptr<Blocks> of) : from(std::move(of)) {}
        ~Lease() {
            if (block) from->give(std::move(block));
        }
    };
    struct Free {
        Block block;
        uint64_t since;  // the turn in which it became free
    };

    const size_t keep_;  // free blocks
    std::atomic<uint64_t> draws_{0};
    std::mutex mutex_;
    std::vector<Free> free_;
    uint64_t turn_ = 0;                  // of so many draws
    size_t lent_ = 0, idle_ = 0;         // bytes
    size_t peak_ = 0, peak_before_ = 0;  // that were lent at once, in this turn and in the one before

    void next_turn() {
        std::unique_lock held(mutex_);
        ++turn_;
        peak_before_ = std::exchange(peak_, lent_);
        release_old(held);
    }

    // A free block of at least `bytes`, but not much more, or a new one.
    Block take(size_t bytes) {
        {
            const std::lock_guard held(mutex_);
            for (size_t i = free_.size(); i-- > 0;) {
                const size_t size = size_of(free_[i]);
                if (size < bytes || size > bytes + bytes / 4 + PAGE) continue;
                Block found = std::move(free_[i].block);
                free_.erase(free_.begin() + std::ptrdiff_t(i));
                idle_ -= size;
                count(size);
                return found;
            }
        }
        const size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
        Block made(allocated(size), {size});
        std::unique_lock held(mutex_);
        count(size);
        release_old(held);
        return made;
    }

    // Large ones come from the system itself: what is given back goes there, and not into a heap that others hold.
    static char* allocated(size_t size) {
#if defined(__linux__)
        if (size >= HUGE_PAGE) {
            void* const found =
                mmap(nullptr, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (found == MAP_FAILED) throw std::bad_alloc();
            char* const whole = static_cast<char*>(found);
            const size_t before = (HUGE_PAGE - reinterpret_cast<uintptr_t>(whole) % HUGE_PAGE) % HUGE_PAGE;
            if (before) munmap(whole, before);
            munmap(whole + before + size, HUGE_PAGE - before);
            madvise(whole + before, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
            return whole + before;
        }
#endif
        return static_cast<char*>(::operator new(size, std::align_val_t(PAGE)));
    }

    void give(Block block) {
        std::unique_lock held(mutex_);
        const size_t size = block.get_deleter().bytes;
        lent_ -= size;
        idle_ += size;
        free_.push_back({std::move(block), turn_});
        release_old(held);
    }

    void count(size_t size) {
        lent_ += size;
        peak_ = std::max(peak_, lent_);
    }

    // Release the blocks that are not to be kept, the oldest first; the lock is not held meanwhile.
    void release_old(std::unique_lock<std::mutex>& held) {
        while (!free_.empty() &&
               (free_.size() > keep_ || idle_ > std::max(SPARE, std::max(peak_, peak_before_) - lent_) ||
                free_.front().since + 1 < turn_)) {
            Block old = std::move(free_.front().block);
            free_.erase(free_.begin());
            idle_ -= old.get_deleter().bytes;
            held.unlock();
            old.reset();
            held.lock();
        }
    }

    static size_t size_of(const Free& free) { return free.block.get_deleter().bytes; }

    static void end(PyObject* owner) { delete static_cast<Lease*>(PyCapsule_GetContext(owner)); }
};

}  // namespace relive
