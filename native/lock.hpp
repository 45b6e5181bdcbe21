// Who may use a buffer at this moment. The interpreter's own lock protects what is here, so that entering costs next to
// nothing where no thread waits: a thread waits only for one that let go of the interpreter in the middle of a call.
// An interpreter without such a lock pays for a mutex, which is held for as long as a few numbers are read and set.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "interpreter.hpp"

namespace relive {

class Lock {
public:
    Lock() : gate_(PyThread_allocate_lock()) {
        if (!gate_) throw std::bad_alloc();
        PyThread_acquire_lock(gate_, WAIT_LOCK);  // shut
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() {
        if (!open_) PyThread_release_lock(gate_);
        PyThread_free_lock(gate_);
    }

    // Whether this thread is inside a call.
    bool taken() const { return mine() && depth_ > held_; }

    // Whether this thread holds the lock over several calls.
    bool held() const { return mine() && held_; }

    // Enter, once more where this thread is inside. False with an exception, where a signal's handler raised one, and
    // in other threads than the one that ends the interpreter.
    bool enter() { return enter(true); }

    void leave() {
        const Held held(mutex_);
        let_go();
    }

    // Enter for several calls, each of which is as one outside. False as of `enter`.
    bool hold() { return enter() && ++held_; }

    void release() {
        --held_;
        leave();
    }

    // Whether this thread is inside, and neither holds the lock nor is in a call inside another one.
    bool once() const { return mine() && depth_ == 1; }

    // Do work in the middle of a call, while others may make theirs: it needs neither the lock nor the interpreter.
    template <typename Work>
    void outside(Work&& work) {
        {
            const Held held(mutex_);
            let_go();
            ++outside_;
        }
        {
            Away away;
            work();
            ++returning_;
        }
        Held held(mutex_);
        --returning_;
        --outside_;
        if (owned()) wait(held, false);
        own(PyThread_get_thread_ident());
        depth_ = 1;
    }

    // Enter if that is possible at once.
    bool attempt() { return enter(false); }

    // Whether all other threads are outside of calls. The thread that holds the lock asks.
    bool still() {
        const Held held(mutex_);
        return !outside_ && !returning_;
    }

    // In a forked child: threads that waited are not there, nor one that was inside, unless it is this one.
    void forked() {
        std::construct_at(&mutex_);  // some thread of the parent may have it
        if (!mine()) own(0), depth_ = held_ = 0;
        waiting_ = outside_ = 0;
        returning_ = 0, Interpreter::away = 0;
        open_ = false;
        // The old one is left as it is: its threads, in the parent, would have to be waited for.
        gate_ = PyThread_allocate_lock();
        if (!gate_) throw std::bad_alloc();
        PyThread_acquire_lock(gate_, WAIT_LOCK);
    }

private:
#if defined(Py_GIL_DISABLED)
    using Mutex = std::mutex;
#else
    struct Mutex {
        void lock() {}
        void unlock() {}
    };
#endif
    using Held = std::unique_lock<Mutex>;

    Mutex mutex_;              // over what is below; no call of Python's is made by who has it
    PyThread_type_lock gate_;  // opened for one of those that wait, who shuts it
    std::atomic<unsigned long> owner_{0};
    int64_t depth_ = 0, held_ = 0, waiting_ = 0, outside_ = 0;  // `held_` of the entries are holds
    bool open_ = false;
    std::atomic<int64_t> returning_{0};  // threads that wait for the interpreter alone

    bool mine() const { return owner_.load(std::memory_order_relaxed) == PyThread_get_thread_ident(); }
    bool owned() const { return owner_.load(std::memory_order_relaxed); }
    void own(unsigned long thread) { owner_.store(thread, std::memory_order_relaxed); }

    // Without `waits`: if that is possible at once.
    bool enter(bool waits) {
        const unsigned long self = PyThread_get_thread_ident();
        if (owner_.load(std::memory_order_relaxed) != self) {
            if (Interpreter::ending.load(std::memory_order_relaxed) && !may_enter(self)) return false;
            if (returning_.load(std::memory_order_relaxed)) give_way();
            Held held(mutex_);
            if (owned() && !(waits && wait(held, true))) return false;
            own(self);
        }
        ++depth_;
        return true;
    }

    void let_go() {
        if (--depth_) return;
        own(0);
        if (waiting_ && !open_) {
            open_ = true;
            ++returning_;  // a waiting thread may get the interpreter after the next call wants to enter
            PyThread_release_lock(gate_);
        }
    }

    // A thread that makes call after call keeps the interpreter for 5 ms at a time. A thread that waits to continue
    // its call comes first.
    void give_way() const {
        Away away;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
        while (returning_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }

    // A daemon thread ends here, as if it had called `sys.exit`: it could not have the interpreter back.
    bool may_enter(unsigned long self) const {
        if (self == Interpreter::ending) return true;
        PyErr_SetString(PyExc_SystemExit, "the process ends");
        return false;
    }

    // What opening the gate did, undone by the one who came through.
    void shut() {
        open_ = false;
        --returning_;
    }

    // False where a signal's handler raised an exception, if such may interrupt.
    bool wait(Held& held, bool interruptible) {
        ++waiting_;
        bool interrupted = false;
        while (owned() && !interrupted) {
            held.unlock();
            PyLockStatus status;
            {
                nb::gil_scoped_release released;
                status = PyThread_acquire_lock_timed(gate_, -1, interruptible);
            }
            if (status != PY_LOCK_ACQUIRED) interrupted = PyErr_CheckSignals() < 0;
            held.lock();
            if (status == PY_LOCK_ACQUIRED) shut();
        }
        --waiting_;
        if (open_ && !waiting_ && PyThread_acquire_lock(gate_, NOWAIT_LOCK)) shut();  // no thread is left to come
        return !interrupted;
    }
};

// A `with` block over several calls.
struct Holding {
    nb::object owner;
    Lock& lock;
};

// Enters a lock for as long as it lives.
class Entered {
public:
    explicit Entered(Lock& lock) : lock_(lock) {
        if (!lock_.enter()) nb::raise_python_error();
    }
    ~Entered() { lock_.leave(); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

private:
    Lock& lock_;
};

}  // namespace relive
