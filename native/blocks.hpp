// Memory that is used again as soon as no array refers to it any more; relive._base.memory has the same in Python.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "numpy_api.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace relive {

// What is lent begins with a page, so that all arrays of a batch reach the end of a line at the same row. Of a block
// that is used again the newest comes first: it is in the caches.
class Blocks : public std::enable_shared_from_this<Blocks> {
public:
    explicit Blocks(size_t keep) : keep_(keep) {}

    // An owner of `bytes` at `data`, until it is dropped.
    nb::object lend(size_t bytes, char*& data) {
        auto lease = std::make_unique<Lease>(Lease{shared_from_this(), take(bytes)});
        data = lease->block.get();
        nb::object owner = nb::steal(PyCapsule_New(data, nullptr, end));
        if (!owner.is_valid() || PyCapsule_SetContext(owner.ptr(), lease.get())) nb::raise_python_error();
        lease.release();
        return owner;
    }

private:
    static constexpr size_t PAGE = 4 << 10, HUGE_PAGE = 2 << 20;

    struct Release {
        size_t bytes;
        void operator()(char* block) const { ::operator delete(block, start(bytes)); }
        static std::align_val_t start(size_t bytes) { return std::align_val_t(bytes < HUGE_PAGE ? PAGE : HUGE_PAGE); }
    };
    using Block = std::unique_ptr<char, Release>;
    struct Lease {
        std::shared_ptr<Blocks> from;
        Block block;
    };

    const size_t keep_;  // free blocks
    std::mutex mutex_;
    std::vector<Block> free_;

    // A free block of at least `bytes`, but not much more, or a new one.
    Block take(size_t bytes) {
        {
            const std::lock_guard held(mutex_);
            for (size_t i = free_.size(); i-- > 0;) {
                const size_t size = free_[i].get_deleter().bytes;
                if (size < bytes || size > bytes + bytes / 4 + PAGE) continue;
                Block found = std::move(free_[i]);
                free_.erase(free_.begin() + std::ptrdiff_t(i));
                return found;
            }
        }
        const size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
        Block made(static_cast<char*>(::operator new(size, Release::start(size))), {size});
#if defined(__linux__)
        if (size >= HUGE_PAGE) madvise(made.get(), size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
        return made;
    }

    void give(Block block) {
        Block oldest(nullptr, {0});  // released outside of the lock
        const std::lock_guard held(mutex_);
        if (free_.size() == keep_) {
            oldest = std::move(free_.front());
            free_.erase(free_.begin());
        }
        free_.push_back(std::move(block));
    }

    static void end(PyObject* owner) {
        const std::unique_ptr<Lease> lease(static_cast<Lease*>(PyCapsule_GetContext(owner)));
        if (lease) lease->from->give(std::move(lease->block));
    }
};

}  // namespace relive
