// What one call writes to a ring, and what a buffer says about it. Knows bytes and integers, no Python object.
#pragma once

#include <cstdint>

namespace relive {

// What one call writes: `[n, T]` rows of every column, contiguous; of a stack one frame after the other, but where
// `behind` says otherwise.
struct Steps {
    const char* const* values;
    const char* const* nexts;  // of the observation's columns, or null
    const uint8_t *terminated, *truncated;
    const double* priority;  // one a step, or null
    const int64_t* numbers;  // of the lanes; null: row i is lane i
    int64_t n, length;
    bool by_time = false;             // all lanes' first steps come first, then all lanes' second ones
    const uint8_t* behind = nullptr;  // for each observation's column whether frames lie behind, in `nexts`, too

    int64_t number(int64_t i) const { return numbers ? numbers[i] : i; }

    // Whether one was cut off by a time limit without a final observation to bootstrap from.
    bool loses_a_final() const {
        bool found = false;
        for (int64_t k = 0; !nexts && k < n * length; ++k) found |= truncated[k] && !terminated[k];
        return found;
    }
};

// What a buffer says once, as bits.
enum Notice : uint8_t {
    UNBOOTSTRAPPED = 1,
    MANY_CUTS = 2,
    REPEATED_FINALS = 4,
    MANY_BOUNDARIES = 8,
    NO_ENDS = 32,
    OTHER_PADDING = 64
};

}  // namespace relive
