// Work without the interpreter's lock, and the interpreter's end.
//
// A thread that wants the interpreter back while that ends is torn down where it stands, inside of a C++ frame too, for
// which C++ ends the whole process. So the end waits for those that are away, and no further call goes away:
// `_buffer/call_lock.py`.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>

namespace relive {

namespace nb = nanobind;

struct Interpreter {
    static inline std::atomic<int64_t> away{0};          // threads that will want it back
    static inline std::atomic<unsigned long> ending{0};  // the thread that ends it
};

// As long as there is one, its thread works without the interpreter.
class Away {
public:
    Away() {
        if (Interpreter::ending.load(std::memory_order_relaxed)) return;
        ++Interpreter::away;
        state_ = PyEval_SaveThread();
    }
    ~Away() {
        if (!state_) return;
        PyEval_RestoreThread(state_);
        --Interpreter::away;
    }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

private:
    PyThreadState* state_ = nullptr;
};

}  // namespace relive
