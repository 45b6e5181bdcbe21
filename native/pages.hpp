// Rows of a mapped file that are not in memory. Knows addresses and the system, no Python object.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace relive {

// A fault waits for one page, and has the system read megabytes around it, which push out what is drawn next. Rows that
// are asked for before they are copied come alone and all at once. To ask for a row costs a third of a microsecond, so
// that is only done where the reads before had to wait for the disk.
class Pages {
public:
    explicit Pages(bool mapped) : mapped_(mapped) {}

    bool mapped() const { return mapped_; }

    // Exists while rows are read, all of them by one thread.
    class Reading {
    public:
        explicit Reading(const Pages& pages)
            : pages_(pages), missing_(pages.mapped_ && pages.missing_), before_(pages.mapped_ ? blocks_read() : 0) {}
        Reading(const Reading&) = delete;
        Reading& operator=(const Reading&) = delete;
        ~Reading() {
            if (pages_.mapped_) pages_.missing_ = blocks_read() != before_;
        }
        bool missing() const { return missing_; }

    private:
        const Pages& pages_;
        const bool missing_;
        const long before_;
    };

    static void ask(const char* from, size_t bytes) {
#if defined(__linux__)
        static const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
        const auto address = reinterpret_cast<uintptr_t>(from), start = address & ~(page - 1);
        madvise(reinterpret_cast<void*>(start), address - start + bytes, MADV_WILLNEED);
#else
        static_cast<void>(from), static_cast<void>(bytes);
#endif
    }

private:
    const bool mapped_;
    mutable std::atomic<bool> missing_{false};  // as the last read found it

    // What this thread had the system read from disks, by faults and by asking.
    static long blocks_read() {
#if defined(__linux__)
        rusage used;
        return getrusage(RUSAGE_THREAD, &used) ? 0 : used.ru_inblock;
#else
        return 0;
#endif
    }
};

}  // namespace relive
