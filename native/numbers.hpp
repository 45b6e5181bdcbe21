// Numbers of one type as numbers of another one, where that does not change what they mean: a float is never rounded
// to an integer, an integer never wraps, a finite number never becomes infinite. Knows bytes, no Python object.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace relive {

// Element types by what they are, for NumPy has two 64-bit integers. The complex ones can only be copied.
enum class Number : uint8_t { NONE, FLAG, I8, I16, I32, I64, U8, U16, U32, U64, BF16, F16, F32, F64, C64, C128 };

inline Number number_of(char kind, size_t size) {
    const auto log = std::countr_zero(size);
    if (!std::has_single_bit(size) || log > 4) return Number::NONE;
    if (kind == 'b') return size == 1 ? Number::FLAG : Number::NONE;
    if (kind == 'i' && log <= 3) return Number(int(Number::I8) + log);
    if (kind == 'u' && log <= 3) return Number(int(Number::U8) + log);
    if (kind == 'f' && log >= 1 && log <= 3) return Number(int(Number::F16) + log - 1);
    if (kind == 'c' && log >= 3) return Number(int(Number::C64) + log - 3);
    return Number::NONE;
}

constexpr size_t size_of(Number type) {
    constexpr uint8_t SIZES[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
    return SIZES[size_t(type)];
}
inline bool is_integer(Number type) { return type >= Number::I8 && type <= Number::U64; }
inline bool is_complex(Number type) { return type >= Number::C64; }

struct Flag {
    uint8_t value;
};
struct Half {
    uint16_t bits;
};
struct Brain {  // bfloat16, the upper half of a float
    uint16_t bits;
};

inline double widened(Brain brain) { return std::bit_cast<float>(uint32_t(brain.bits) << 16); }

// The nearest bfloat16, of two the even one; every NaN becomes the quiet one of its sign, as in ml_dtypes.
inline Brain brained(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return {uint16_t((bits >> 16 & 0x8000) | 0x7FC0)};
    return {uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

inline double widened(Half half) {
    const uint64_t sign = uint64_t(half.bits & 0x8000) << 48, exponent = half.bits >> 10 & 31, rest = half.bits & 0x3FF;
    if (exponent == 0) return std::copysign(double(rest) * 0x1p-24, std::bit_cast<double>(sign));
    const uint64_t moved = exponent == 31 ? 0x7FF : exponent + 1023 - 15;
    return std::bit_cast<double>(sign | moved << 52 | rest << 42);
}

// The nearest half, of two the even one.
inline Half halved(double value) {
    const uint64_t bits = std::bit_cast<uint64_t>(value), size = bits & ~(uint64_t(1) << 63);
    const auto sign = uint16_t(bits >> 48 & 0x8000);
    const auto with_sign = [sign](uint64_t half) { return Half{uint16_t(sign | half)}; };
    if (size >= 0x7FF0000000000000) {
        const uint64_t payload = size >> 42 & 0x3FF;
        return with_sign(0x7C00 | (payload || size == 0x7FF0000000000000 ? payload : 1));
    }
    if (size >= 0x40F0000000000000) return with_sign(0x7C00);                                              // 65,536
    if (size < 0x3F10000000000000) return with_sign(uint64_t(std::nearbyint(std::fabs(value) * 0x1p24)));  // 2^-14
    const uint64_t moved = size - (uint64_t(1023 - 15) << 52);
    return with_sign((moved + 0x1FFFFFFFFFF + (moved >> 42 & 1)) >> 42);
}

namespace detail {

constexpr int64_t BLOCK = 256;

template <typename Wide, typename From>
void widen(const char* from, int64_t n, Wide* to) {
    for (int64_t i = 0; i < n; ++i) {
        From value;
        std::memcpy(&value, from + size_t(i) * sizeof(From), sizeof(From));
        if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, Brain>)
            to[i] = Wide(widened(value));
        else
            to[i] = Wide(value);
    }
}

// Integers of up to 63 bits and flags as int64, other integers as uint64, floats as double.
inline void widen(Number type, const char* from, int64_t n, int64_t* to) {
    switch (type) {
        case Number::I8:
            return widen<int64_t, int8_t>(from, n, to);
        case Number::I16:
            return widen<int64_t, int16_t>(from, n, to);
        case Number::I32:
            return widen<int64_t, int32_t>(from, n, to);
        case Number::U16:
            return widen<int64_t, uint16_t>(from, n, to);
        case Number::U32:
            return widen<int64_t, uint32_t>(from, n, to);
        default:
            return widen<int64_t, uint8_t>(from, n, to);
    }
}
inline void widen(Number, const char*, int64_t, uint64_t*) {}  // they are as wide already
inline void widen(Number type, const char* from, int64_t n, double* to) {
    switch (type) {
        case Number::BF16:
            return widen<double, Brain>(from, n, to);
        case Number::F16:
            return widen<double, Half>(from, n, to);
        default:
            return widen<double, float>(from, n, to);
    }
}

// Whether each of the values is one that T has. What is wrong is gathered as bits, so that the compiler makes vectors.
template <typename T, typename Wide>
bool narrow(const Wide* from, int64_t n, T* to) {
    Wide wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
        to[i] = T(from[i]);
        wrong |= Wide(to[i]) ^ from[i];
        if constexpr (std::is_signed_v<T> != std::is_signed_v<Wide>) wrong |= from[i] >> 63;  // the sign
    }
    return !wrong;
}

template <typename Wide>
bool narrow(const Wide* from, int64_t n, Flag* to) {
    bool good = true;
    for (int64_t i = 0; i < n; ++i) {
        to[i].value = from[i] != Wide(0);
        good &= (from[i] == Wide(0)) | (from[i] == Wide(1));
    }
    return good;
}

template <typename Wide>
bool narrow(const Wide* from, int64_t n, double* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = double(from[i]);
    return true;
}

template <typename Wide>
bool narrow(const Wide* from, int64_t n, float* to) {
    constexpr uint32_t INFINITE = 0x7F800000;
    uint32_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
        to[i] = float(from[i]);
        wrong |= (std::bit_cast<uint32_t>(to[i]) & INFINITE) == INFINITE ? 1 : 0;
    }
    for (int64_t i = 0; wrong && i < n; ++i)
        if (std::isinf(to[i]) && !std::isinf(double(from[i]))) return false;
    return true;
}

template <typename Wide>
bool narrow(const Wide* from, int64_t n, Half* to) {
    bool good = true;
    for (int64_t i = 0; i < n; ++i) {
        // Integers become a float32 first, as in NumPy.
        to[i] = halved(std::is_integral_v<Wide> ? double(float(from[i])) : double(from[i]));
        good &= (to[i].bits & 0x7FFF) != 0x7C00 || std::isinf(double(from[i]));
    }
    return good;
}

template <typename Wide>
bool narrow(const Wide* from, int64_t n, Brain* to) {
    bool good = true;
    for (int64_t i = 0; i < n; ++i) {
        to[i] = brained(float(from[i]));  // through a float32, as in ml_dtypes
        good &= (to[i].bits & 0x7FFF) != 0x7F80 || std::isinf(double(from[i]));
    }
    return good;
}

template <typename Wide>
bool narrow(Number type, const Wide* from, int64_t n, char* to) {
    const auto as = [&]<typename T>(T*) { return narrow(from, n, reinterpret_cast<T*>(to)); };
    switch (type) {
        case Number::FLAG:
            return as(static_cast<Flag*>(nullptr));
        case Number::BF16:
            return as(static_cast<Brain*>(nullptr));
        case Number::F16:
            return as(static_cast<Half*>(nullptr));
        case Number::F32:
            return as(static_cast<float*>(nullptr));
        case Number::F64:
            return as(static_cast<double*>(nullptr));
        default:
            break;
    }
    if constexpr (std::is_integral_v<Wide>) switch (type) {
            case Number::I8:
                return as(static_cast<int8_t*>(nullptr));
            case Number::I16:
                return as(static_cast<int16_t*>(nullptr));
            case Number::I32:
                return as(static_cast<int32_t*>(nullptr));
            case Number::I64:
                return as(static_cast<int64_t*>(nullptr));
            case Number::U8:
                return as(static_cast<uint8_t*>(nullptr));
            case Number::U16:
                return as(static_cast<uint16_t*>(nullptr));
            case Number::U32:
                return as(static_cast<uint32_t*>(nullptr));
            case Number::U64:
                return as(static_cast<uint64_t*>(nullptr));
            default:
                break;
        }
    return false;
}

template <typename Wide>
bool convert(const char* from, Number given, char* to, Number wanted, int64_t n) {
    if (given == Number::I64 || given == Number::U64 || given == Number::F64)
        return narrow(wanted, reinterpret_cast<const Wide*>(from), n, to);
    Wide block[BLOCK];
    for (int64_t done = 0, m; done < n; done += m) {
        m = std::min(n - done, BLOCK);
        widen(given, from + size_t(done) * size_of(given), m, block);
        if (!narrow(wanted, block, m, to + size_t(done) * size_of(wanted))) return false;
    }
    return true;
}

}  // namespace detail

// Writes n aligned numbers of one type as another one; false where one of them would change its meaning.
inline bool convert(const char* from, Number given, char* to, Number wanted, int64_t n) {
    if (given == Number::NONE || is_complex(given) || is_complex(wanted)) return false;
    if (given == Number::U64) return detail::convert<uint64_t>(from, given, to, wanted, n);
    if (given >= Number::BF16) return detail::convert<double>(from, given, to, wanted, n);
    return detail::convert<int64_t>(from, given, to, wanted, n);
}

}  // namespace relive
