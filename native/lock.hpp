// Who may use a buffer at this moment. The interpreter's own lock protects what is here, so that entering costs next to
// nothing where nobody waits: a thread waits only for one that let go of the interpreter in the middle of a call.
#pragma once

#include "numpy_api.hpp"

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

    // Whether this thread is inside.
    bool taken() const { return owner_ == PyThread_get_thread_ident(); }

    // Enter, once more where this thread is inside. False with an exception, where a signal's handler raised one.
    bool enter() {
        const unsigned long self = PyThread_get_thread_ident();
        if (owner_ != self && owner_ && !wait()) return false;
        owner_ = self;
        ++depth_;
        return true;
    }

    void leave() {
        if (--depth_) return;
        owner_ = 0;
        if (waiting_ && !open_) {
            open_ = true;
            PyThread_release_lock(gate_);
        }
    }

private:
    PyThread_type_lock gate_;  // opened for one of those that wait, who shuts it
    unsigned long owner_ = 0;
    int64_t depth_ = 0, waiting_ = 0;
    bool open_ = false;

    bool wait() {
        ++waiting_;
        bool interrupted = false;
        while (owner_ && !interrupted) {
            PyLockStatus status;
            Py_BEGIN_ALLOW_THREADS status = PyThread_acquire_lock_timed(gate_, -1, 1);
            Py_END_ALLOW_THREADS if (status == PY_LOCK_ACQUIRED) open_ = false;
            else interrupted = PyErr_CheckSignals() < 0;
        }
        --waiting_;
        return !interrupted;
    }
};

}  // namespace relive
