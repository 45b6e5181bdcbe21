// What the kernels offer. They know arrays of numbers and no Python object; kernels.cpp is compiled once for each
// instruction set and fills one table each. All tables, and relive._ring.kernels_numpy, give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace relive {

constexpr int FAN_OUT = 8;      // children a node: eight float64 are one cache line
constexpr int MAX_LEVELS = 22;  // 8**21 = 2**63 leaves

// An 8-ary sum tree over arrays of a storage. Level 0 holds the leaves; sums[l + 1][g] is the sum, and
// mins[l][g] the smallest positive leaf (0 if there is none), of group g of level l. The last level has one group.
struct Tree {
    int levels;
    std::int64_t groups[MAX_LEVELS];
    double* sums[MAX_LEVELS];
    double* mins[MAX_LEVELS];
    double* state;  // total, smallest positive leaf (infinity if none), number of positive leaves
};

// Leaves to write: 0 at `removed`, then values[i * stride] at added[i]; the last one for an index counts.
struct Writes {
    const std::int64_t* removed;
    std::int64_t removed_count;
    const std::int64_t* added;
    std::int64_t added_count;
    const double* values;
    std::int64_t stride;
};

// Rows of one column to copy: row rows[i] of `from` to row i of `to`.
struct Job {
    const char* from;
    char* to;
    const std::int64_t* rows;
    std::size_t row;     // bytes
    std::size_t stride;  // from one row of `from` to the next
};

// Rows at even distances, to be copied to even distances.
struct Strip {
    const char* from;
    char* to;
    std::size_t row, from_step, to_step;  // bytes
};

// Bytes of one row that several columns share, to be fetched together.
struct Fetch {
    const char* from;
    const std::int64_t* rows;
    std::size_t bytes;
    std::size_t stride;
};

// A stack whose frames lie behind: each pixel has an element of `size` bytes of every frame.
struct Pixels {
    const char* data;
    std::int64_t count, frames;
    std::size_t size;
};

struct Kernels {
    const char* name;
    // Leaf in whose half-open share of [0, total) each target lies, and its value.
    void (*find)(const Tree&, const double* target, std::int64_t n, std::int64_t* index, double* value);
    // The same for uniforms in [0, 1), of the whole total or of one of n equal slices each.
    void (*draw)(const Tree&, const double* u, std::int64_t n, bool stratified, std::int64_t* index, double* value);
    // Without replacement; the tree is as before afterwards. `scratch` has room for n times the tree's levels.
    void (*draw_distinct)(Tree&, const double* u, std::int64_t n, std::int64_t* index, double* value, double* scratch);
    // `scratch` has room for removed_count + added_count.
    void (*write)(Tree&, const Writes&, std::int64_t* scratch);
    void (*restore)(Tree&);
    void (*power)(const double* x, std::int64_t n, double exponent, double* result);
    // (|td| + eps) ** alpha; returns the largest |td| + eps, NaN if any input is not finite.
    double (*mass)(const double* td, std::int64_t n, double eps, double alpha, double* result);
    void (*weights)(const double* values, std::int64_t n, double reference, double beta, float* result);
    double (*smallest)(const double* values, std::int64_t n);
    // 2**-t, 1 - 2**-t, and the inverse of that, in place.
    void (*decay)(double* t, std::int64_t n);
    void (*covered)(double* t, std::int64_t n);
    void (*reached)(double* z, std::int64_t n);
    void (*gather)(const Job* jobs, std::size_t count, const Fetch* fetches, std::size_t spans, std::int64_t n);
    void (*copy_strip)(const Strip& strip, std::int64_t n);
    // Copy each frame; null: not that one.
    void (*split)(const Pixels& of, char* const* frames);
    // Whether a stack has those frames; null: whatever it has.
    bool (*shows)(const Pixels& of, const char* const* frames);
    // Whether the frames of `next`, which is like it, are its own but the first, and a newer one.
    bool (*follows)(const Pixels& now, const char* next);
};

// The build that was chosen at import.
const Kernels& chosen();

namespace baseline {
extern const Kernels table;
}
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}

}  // namespace relive
