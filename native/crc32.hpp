// CRC-32 as zlib computes it: by carry-less multiplication where the processor has it, else eight bytes a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define RELIVE_CRC32_FOLDS
#endif

namespace relive {

using Crc32Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Crc32Tables crc32_tables() {
    Crc32Tables tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        tables[0][byte] = crc;
    }
    for (size_t k = 1; k < 8; ++k)
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][before & 255];
        }
    return tables;
}

// The remainder after n more bytes; it stands inverted outside.
inline uint32_t crc32_by_tables(uint32_t crc, const char* data, size_t n) {
    static constexpr Crc32Tables TABLES = crc32_tables();
    for (; n >= 8; n -= 8, data += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data, 8);  // little-endian, as all machines are that this is built for
        word ^= crc;
        crc = 0;
        for (size_t k = 0; k < 8; ++k) crc ^= TABLES[7 - k][word >> 8 * k & 255];
    }
    for (; n; --n, ++data) crc = crc >> 8 ^ TABLES[0][(crc ^ static_cast<uint8_t>(*data)) & 255];
    return crc;
}

#ifdef RELIVE_CRC32_FOLDS
// Not a lambda, as below: the function pointer that one converts to would not have the target.
__attribute__((target("avx2,vpclmulqdq"))) inline __m256i crc32_fold_lanes(__m256i lanes, __m256i by, __m256i next) {
    const __m256i low = _mm256_clmulepi64_epi128(lanes, by, 0x00), high = _mm256_clmulepi64_epi128(lanes, by, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

// Folds `data`, n >= 192 bytes, into lanes that hold the 64 bytes before them, 256 bytes a step as long as that many
// are left.
__attribute__((target("avx2,vpclmulqdq"))) inline void crc32_fold_wide(__m128i* lanes, const char*& data, size_t& n) {
    const __m256i by_256 = _mm256_set_epi64x(0x01322d1430, 0x011542778a, 0x01322d1430, 0x011542778a);
    const __m256i by_64 = _mm256_set_epi64x(0x01c6e41596, 0x0154442bd4, 0x01c6e41596, 0x0154442bd4);
    const auto at = [](const void* from, int i) { return static_cast<const __m256i*>(from) + i; };
    __m256i wide[8];
    for (int i = 0; i < 2; ++i) wide[i] = _mm256_loadu_si256(at(lanes, i));
    for (int i = 2; i < 8; ++i) wide[i] = _mm256_loadu_si256(at(data, i - 2));
    for (data += 192, n -= 192; n >= 256; data += 256, n -= 256)
        for (int i = 0; i < 8; ++i) wide[i] = crc32_fold_lanes(wide[i], by_256, _mm256_loadu_si256(at(data, i)));
    for (int i = 2; i < 8; ++i) wide[i & 1] = crc32_fold_lanes(wide[i & 1], by_64, wide[i]);
    std::memcpy(lanes, wide, 64);
}

// The same, 64 bytes at once.
__attribute__((target("avx512f,vpclmulqdq"))) inline __m512i crc32_fold_lines(__m512i line, __m512i by, __m512i next) {
    const __m512i low = _mm512_clmulepi64_epi128(line, by, 0x00), high = _mm512_clmulepi64_epi128(line, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the exclusive or of all three
}

__attribute__((target("avx512f,vpclmulqdq"))) inline void crc32_fold_widest(__m128i* lanes, const char*& data,
                                                                            size_t& n) {
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01322d1430, 0x011542778a));
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01c6e41596, 0x0154442bd4));
    __m512i lines[4] = {_mm512_loadu_si512(lanes)};
    for (int i = 1; i < 4; ++i) lines[i] = _mm512_loadu_si512(data + 64 * (i - 1));
    for (data += 192, n -= 192; n >= 256; data += 256, n -= 256)
        for (int i = 0; i < 4; ++i) lines[i] = crc32_fold_lines(lines[i], by_256, _mm512_loadu_si512(data + 64 * i));
    for (int i = 1; i < 4; ++i) lines[0] = crc32_fold_lines(lines[0], by_64, lines[i]);
    std::memcpy(lanes, lines, 64);
}

// The same for n >= 64, a multiple of 16: four lanes of 16 bytes are folded over the data, then into one, which is
// reduced (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). The
// constants are powers of x modulo the polynomial.
__attribute__((target("sse4.1,pclmul"))) inline uint32_t crc32_by_folding(uint32_t crc, const char* data, size_t n) {
    const auto load = [](const char* at) __attribute__((target("sse4.1,pclmul"))) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    };
    const auto fold = [](__m128i lane, __m128i by, __m128i next) __attribute__((target("sse4.1,pclmul"))) {
        const __m128i low = _mm_clmulepi64_si128(lane, by, 0x00), high = _mm_clmulepi64_si128(lane, by, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    };
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i lanes[4];
    for (int i = 0; i < 4; ++i) lanes[i] = load(data + 16 * i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
    data += 64, n -= 64;
    static const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    static const bool widest = wide && __builtin_cpu_supports("avx512f");
    if (wide && n >= 192) (widest ? crc32_fold_widest : crc32_fold_wide)(lanes, data, n);
    for (; n >= 64; data += 64, n -= 64)
        for (int i = 0; i < 4; ++i) lanes[i] = fold(lanes[i], by_64, load(data + 16 * i));
    __m128i one = lanes[0];
    for (int i = 1; i < 4; ++i) one = fold(one, by_16, lanes[i]);
    for (; n >= 16; data += 16, n -= 16) one = fold(one, by_16, load(data));
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
    one = _mm_xor_si128(_mm_srli_si128(one, 8), _mm_clmulepi64_si128(one, by_16, 0x10));
    const __m128i rest = _mm_srli_si128(one, 4);
    one = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(one, words), _mm_set_epi64x(0, 0x0163cd6124), 0x00), rest);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(one, words), polynomial, 0x10);
    one = _mm_xor_si128(one, _mm_clmulepi64_si128(_mm_and_si128(quotient, words), polynomial, 0x00));
    return static_cast<uint32_t>(_mm_extract_epi32(one, 1));
}
#endif

inline uint32_t crc32(const char* data, size_t n) {
    uint32_t crc = ~0u;
#ifdef RELIVE_CRC32_FOLDS
    static const bool folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    if (folds && n >= 64) {
        const size_t whole = n & ~size_t(15);
        crc = crc32_by_folding(crc, data, whole);
        data += whole;
        n -= whole;
    }
#endif
    return ~crc32_by_tables(crc, data, n);
}

}  // namespace relive
