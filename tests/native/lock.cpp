// The lock of a buffer as a free-threaded interpreter has it, for ThreadSanitizer: what Python's API does is stood for
// by the C++ library, and no interpreter's lock is there that would hide a race. tests/sanitizers.sh compiles and runs
// it with the headers of any interpreter.
//
//     lock [SECONDS]
//
// Ends with 0 if no two threads were inside at the same time, and if none of them had to wait for ever.
#if !defined(Py_GIL_DISABLED)
#define Py_GIL_DISABLED 1
#endif
#include "../../native/lock.hpp"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Gate {
    std::mutex mutex;
    std::condition_variable opened;
    bool shut = false;
};

extern "C" {
unsigned long PyThread_get_thread_ident() {
    static std::atomic<unsigned long> threads{0};
    thread_local const unsigned long self = ++threads;
    return self;
}
PyThread_type_lock PyThread_allocate_lock() { return new Gate; }
void PyThread_free_lock(PyThread_type_lock lock) { delete static_cast<Gate*>(lock); }
PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long, int interruptible) {
    Gate& gate = *static_cast<Gate*>(lock);
    std::unique_lock held(gate.mutex);
    while (gate.shut)  // now and then a signal comes
        if (gate.opened.wait_for(held, std::chrono::milliseconds(2)) == std::cv_status::timeout && interruptible)
            return PY_LOCK_INTR;
    gate.shut = true;
    return PY_LOCK_ACQUIRED;
}
int PyThread_acquire_lock(PyThread_type_lock lock, int) {
    Gate& gate = *static_cast<Gate*>(lock);
    const std::lock_guard held(gate.mutex);
    return gate.shut ? 0 : (gate.shut = true);
}
void PyThread_release_lock(PyThread_type_lock lock) {
    Gate& gate = *static_cast<Gate*>(lock);
    const std::lock_guard held(gate.mutex);
    gate.shut = false;
    gate.opened.notify_one();
}
PyThreadState* PyEval_SaveThread() { return reinterpret_cast<PyThreadState*>(1); }
void PyEval_RestoreThread(PyThreadState*) {}
void PyErr_SetString(PyObject*, const char*) {}
PyObject* PyExc_SystemExit = nullptr;

// Every third signal's handler raises an exception.
int PyErr_CheckSignals() {
    thread_local int seen = 0;
    return ++seen % 3 ? 0 : -1;
}
}

int main(int count, char** arguments) {
    using namespace relive;
    const double seconds = count > 1 ? std::atof(arguments[1]) : 5;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    Lock lock;
    int64_t inside = 0, calls = 0;  // what the lock is for
    std::atomic<int64_t> interrupted{0}, wrong{0};
    const auto work = [&](int kind) {
        for (int64_t turn = 0; std::chrono::steady_clock::now() < end; ++turn) {
            const bool tries = kind == 2 && turn % 2;
            if (tries ? !lock.attempt() : !lock.enter()) {
                interrupted += !tries;
                continue;
            }
            if (inside++) ++wrong;
            ++calls;
            if (turn % 7 == 0 && (!lock.enter() || lock.once())) ++wrong;
            if (turn % 7 == 0) lock.leave();
            if (turn % 101 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
            if (--inside) ++wrong;
            if (kind == 1 && turn % 5 == 0) {
                lock.outside([] { std::this_thread::yield(); });
                if (inside++) ++wrong;
                --inside;
            }
            if (!lock.taken()) ++wrong;
            lock.leave();
        }
    };
    std::vector<std::thread> threads;
    for (int kind = 0; kind < 4; ++kind) threads.emplace_back(work, kind);
    for (std::thread& thread : threads) thread.join();
    // All have left: none is waited for.
    if (!lock.enter() || !lock.once() || !lock.still()) ++wrong;
    lock.leave();
    std::printf("%lld calls, %lld waits ended by a signal, %lld wrong\n", static_cast<long long>(calls),
                static_cast<long long>(interrupted.load()), static_cast<long long>(wrong.load()));
    return wrong || !calls;
}
