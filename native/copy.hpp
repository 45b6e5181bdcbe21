// Copies and prefetches of single rows. A call to libc for every 4-byte field would cost more than the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
// The empty statement is for GCC, which takes a function that only prefetches for one without effect and drops its
// calls.
#define RELIVE_FETCH(address, write, cache)        \
    do {                                           \
        __builtin_prefetch(address, write, cache); \
        __asm__ volatile("");                      \
    } while (false)
// Into the second cache: the first one's few miss buffers would bound how many rows can be on their way.
#define RELIVE_PREFETCH(address) RELIVE_FETCH(address, 0, 2)
#define RELIVE_PREFETCH_WRITE(address) RELIVE_FETCH(address, 1, 3)
#define RELIVE_INLINE __attribute__((always_inline)) inline
#define RELIVE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define RELIVE_PREFETCH(address) ((void)(address))
#define RELIVE_PREFETCH_WRITE(address) ((void)(address))
#define RELIVE_INLINE inline
#define RELIVE_INLINE_LAMBDA
#endif

namespace relive {

// Rows up to this size are copied in line, in blocks that overlap at the end instead of a loop over the rest.
constexpr size_t IN_LINE = 512;
// Rows of at least this size are written past the caches where a call copies more bytes than those hold.
constexpr size_t STREAMED = 1 << 10, BEYOND_CACHES = 16 << 20;
// Items of at most this size are fetched many at a time.
constexpr size_t SMALL = 512;
// More lines than this of one row are left to the hardware's own prefetcher.
constexpr size_t LINES = 5;

// Rows are copied while another process may write others over them; the draw sees that afterwards and throws them away
// (`Rows::overtaken`). To C++ that is a race unless every byte is atomic, as it is where ThreadSanitizer looks for
// unwanted races. Elsewhere it is whatever moves are fastest.
static inline void copy_bytes(char* to, const char* from, size_t n) {
#if defined(RELIVE_ATOMIC_COPIES)
    const auto move = [&]<typename Word>(Word* target) {
        const auto* source = reinterpret_cast<const Word*>(from);
        __atomic_store_n(target, __atomic_load_n(source, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
        to += sizeof(Word), from += sizeof(Word), n -= sizeof(Word);
    };
    while (n >= 8 && !((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & 7))
        move(reinterpret_cast<uint64_t*>(to));
    while (n) move(to);
#else
    std::memcpy(to, from, n);
#endif
}

template <size_t N>
static inline void copy_block(char* to, const char* from) {
    copy_bytes(to, from, N);
}

// N to 2 N bytes as two blocks that may overlap.
template <size_t N>
static inline void copy_ends(char* to, const char* from, size_t n) {
    copy_block<N>(to, from);
    copy_block<N>(to + n - N, from + n - N);
}

static inline void copy_row(char* to, const char* from, size_t n) {
    if (n > IN_LINE) {
        copy_bytes(to, from, n);
    } else if (n >= 64) {
        for (size_t i = 0; i + 64 <= n; i += 64) copy_block<64>(to + i, from + i);
        copy_block<64>(to + n - 64, from + n - 64);
    } else if (n >= 32) {
        copy_ends<32>(to, from, n);
    } else if (n >= 16) {
        copy_ends<16>(to, from, n);
    } else if (n >= 8) {
        copy_ends<8>(to, from, n);
    } else if (n >= 4) {
        copy_ends<4>(to, from, n);
    } else {
        for (size_t i = 0; i < n; ++i) copy_block<1>(to + i, from + i);
    }
}

// Whether two rows are equal.
static inline bool same_row(const char* one, const char* other, size_t n) {
#if defined(__SSE2__)
    if (n >= 16 && n <= IN_LINE) {
        const auto differ = [&](size_t i) {
            const auto load = [i](const char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + i)); };
            return _mm_xor_si128(load(one), load(other));
        };
        __m128i found = differ(n - 16);
        for (size_t i = 0; i + 16 <= n; i += 16) found = _mm_or_si128(found, differ(i));
        return _mm_movemask_epi8(_mm_cmpeq_epi8(found, _mm_setzero_si128())) == 0xFFFF;
    }
#endif
    return std::memcmp(one, other, n) == 0;
}

// Rows of so many bytes, as many of them are copied and compared.
struct AnyRow {
    size_t n;
    void copy(char* to, const char* from) const { copy_row(to, from, n); }
    // Whether the rows of each pair are equal.
    template <typename Pair>
    bool same(int64_t count, Pair pair) const {
        bool found = true;
        for (int64_t k = 0; k < count; ++k) {
            const auto [one, other] = pair(k);
            found &= same_row(one, other, n);
        }
        return found;
    }
};
template <size_t N>
struct TwoEnds : AnyRow {  // N to 2 N bytes
    void copy(char* to, const char* from) const { copy_ends<N>(to, from, n); }
};
template <size_t BLOCKS>
struct InBlocks : AnyRow {  // of 16 bytes, the last of which may overlap the one before
    RELIVE_INLINE void copy(char* to, const char* from) const {
        each([&](size_t i) { copy_block<16>(to + i, from + i); });
    }
#if defined(__SSE2__)
    template <typename Pair>
    RELIVE_INLINE bool same(int64_t count, Pair pair) const {
        __m128i found = _mm_setzero_si128();
        for (int64_t k = 0; k < count; ++k) {
            const auto [one, other] = pair(k);
            each([&, one = one, other = other](size_t i) {
                const auto load = [i](const char* at) {
                    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + i));
                };
                found = _mm_or_si128(found, _mm_xor_si128(load(one), load(other)));
            });
        }
        return _mm_movemask_epi8(_mm_cmpeq_epi8(found, _mm_setzero_si128())) == 0xFFFF;
    }
#endif

private:
    template <typename Body>
    RELIVE_INLINE void each(Body body) const {
        [&]<size_t... I>(std::index_sequence<I...>) { (body(16 * I), ...); }(std::make_index_sequence<BLOCKS - 1>());
        body(n - 16);
    }
};

// Calls body(rows) with what is fastest for many rows of this size, which is then not asked for again at each.
template <typename Body>
static inline void with_rows_of(size_t n, const Body& body) {
    if (n < 4 || n > 128) return body(AnyRow{n});
    if (n < 8) return body(TwoEnds<4>{{n}});
    if (n < 16) return body(TwoEnds<8>{{n}});
    switch ((n + 15) / 16) {
        case 1:
            return body(InBlocks<1>{{n}});
        case 2:
            return body(InBlocks<2>{{n}});
        case 3:
            return body(InBlocks<3>{{n}});
        case 4:
            return body(InBlocks<4>{{n}});
        case 5:
            return body(InBlocks<5>{{n}});
        case 6:
            return body(InBlocks<6>{{n}});
        case 7:
            return body(InBlocks<7>{{n}});
        default:
            return body(InBlocks<8>{{n}});
    }
}

// N bytes and the rest by its own size: blocks that overlap would touch another line for a few bytes.
template <size_t N>
static inline void copy_head(char* to, const char* from, size_t n) {
    copy_block<N>(to, from);
    if (n > N) copy_row(to + N, from + N, n - N);
}

// Past the caches: an ordinary store reads a line before it is written, and pushes out another one. To be followed by
// `settle_streams` before anyone else may look.
static inline void stream_row(char* to, const char* from, size_t n) {
#if defined(__SSE2__) && !defined(RELIVE_ATOMIC_COPIES)
    const size_t head = size_t(-reinterpret_cast<uintptr_t>(to) & 63);
    if (head) copy_row(to, from, head);
    for (to += head, from += head, n -= head; n >= 64; to += 64, from += 64, n -= 64)
        for (int i = 0; i < 4; ++i)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i,
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i));
    if (n) copy_row(to, from, n);
#else
    copy_row(to, from, n);
#endif
}
static inline void settle_streams() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// A line is asked for once: requests beyond those that the core can have in flight hold up the copies behind them. No
// branch depends on where a row begins: of rows at random it could not be foreseen.
static inline void prefetch_row(const char* row, size_t n) {
    const size_t bytes = n < 64 * LINES ? n : 64 * LINES;
    for (size_t offset = 0; offset < bytes; offset += 64) RELIVE_PREFETCH(row + offset);
    RELIVE_PREFETCH(row + bytes - 1);
}

}  // namespace relive
