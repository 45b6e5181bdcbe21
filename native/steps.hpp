// Steps and, beside them, the same steps one later: copied once, and compared in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace relive {

constexpr size_t STEPS_AT_ONCE = 1 << 15;  // bytes, so that what was copied is compared from the first cache

// Copies n bytes and returns whether they equal `other`.
static inline bool copy_and_compare(char* to, const char* from, const char* other, size_t n) {
    bool same = true;
#if defined(__SSE2__)
    // Written past the caches: the copy is read by another thread, much later, and lines need not be fetched first.
    const size_t head = n < 64 ? n : -reinterpret_cast<uintptr_t>(to) & 15;
    std::memcpy(to, from, head);
    same = std::memcmp(from, other, head) == 0;
    size_t i = head;
    const auto load = [](const char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
    __m128i differ = _mm_setzero_si128();
    for (; i + 64 <= n; i += 64)
        for (size_t k = i; k < i + 64; k += 16) {
            const __m128i block = load(from + k);
            differ = _mm_or_si128(differ, _mm_xor_si128(block, load(other + k)));
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), block);
        }
    _mm_sfence();
    same = same && _mm_movemask_epi8(_mm_cmpeq_epi8(differ, _mm_setzero_si128())) == 0xFFFF;
    from += i, other += i, to += i, n -= i;
#endif
    for (size_t m; n > 0; from += m, other += m, to += m, n -= m) {
        m = n < STEPS_AT_ONCE ? n : STEPS_AT_ONCE;
        std::memcpy(to, from, m);
        same = same && std::memcmp(from, other, m) == 0;
    }
    return same;
}

// Copies n steps of `now` and the last one of `later` to `to`; returns whether `later` is `now` one step later.
static inline bool copy_steps(char* to, const char* now, const char* later, size_t n, size_t step) {
    std::memcpy(to, now, step);
    const bool same = copy_and_compare(to + step, now + step, later, (n - 1) * step);
    std::memcpy(to + n * step, later + (n - 1) * step, step);
    return same;
}

}  // namespace relive
