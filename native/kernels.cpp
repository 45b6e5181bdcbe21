// One build of the kernels; CMake compiles this file once for each instruction set, RELIVE_SET.
//
// Nothing here may use inline functions of the standard library: the linker keeps one copy of those for the whole
// module, and that copy could be one compiled for an instruction set that the processor does not have.
#include "kernels.hpp"

#include <cmath>
#include <cstring>

#include "gather.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__GNUC__)
#define RELIVE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define RELIVE_COLD __attribute__((noinline, cold))
#else
#define RELIVE_UNLIKELY(condition) (condition)
#define RELIVE_COLD
#endif

#define RELIVE_TEXT_OF(name) #name
#define RELIVE_TEXT(name) RELIVE_TEXT_OF(name)

namespace relive::RELIVE_SET {
namespace {

constexpr double INFINITE = HUGE_VAL;
constexpr double NOT_A_NUMBER = NAN;

#include "node.hpp"
#include "pixels.hpp"
#include "power.hpp"
#include "tree.hpp"

}  // namespace

const Kernels table = {
    RELIVE_TEXT(RELIVE_SET),
    find,
    draw,
    draw_distinct,
    write,
    restore,
    power,
    mass,
    weights,
    smallest,
    decay,
    covered,
    reached,
    gather,
    copy_strip,
    split,
    shows,
    follows,
};

}  // namespace relive::RELIVE_SET
