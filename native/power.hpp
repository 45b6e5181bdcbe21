// Powers of priorities by one fixed sequence of float64 operations, the one in relive/_kernels_numpy/power.py, which
// explains it. Plain loops that the compiler turns into vectors. Included by kernels.cpp inside the namespace of one
// instruction set.

constexpr double LOWEST_EXPONENT = -1000.0, HIGHEST_EXPONENT = 960.0;
constexpr double LOWEST = 0x1p-1000, HIGHEST = 0x1p960;
constexpr double LN2 = 0x1.62e42fefa39efp-1;
constexpr double ROUNDER = 0x1.8p52;
constexpr std::uint64_t ONE = 0x3FF0000000000000, HALF_ROOT = 0x3FE6A09E667F3BCD, MANTISSA = 0x000FFFFFFFFFFFFF;

inline std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline double number_of(std::uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

constexpr double log_term(int i) { return 2.0 / LN2 / (2 * i + 1); }

constexpr double exp_term(int i) {
    double factorial = 1.0;
    for (int k = 2; k <= i; ++k) factorial *= k;
    return 1.0 / factorial;
}

inline double log2_of(double x) {
    const std::uint64_t bits = bits_of(x > 0x1p-1022 ? x : 0x1p-1022) + (ONE - HALF_ROOT);
    // The exponent as a float64 without a conversion, which AVX2 has none of: 2**52 + k has k in its low bits.
    const double exponent = number_of((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0);
    const double mantissa = number_of((bits & MANTISSA) + HALF_ROOT);
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    const double z = s * s;
    double series = log_term(10);
    series = series * z + log_term(9);
    series = series * z + log_term(8);
    series = series * z + log_term(7);
    series = series * z + log_term(6);
    series = series * z + log_term(5);
    series = series * z + log_term(4);
    series = series * z + log_term(3);
    series = series * z + log_term(2);
    series = series * z + log_term(1);
    series = series * z + log_term(0);
    return exponent + s * series;
}

inline double exp2_of(double t) {
    t = t > LOWEST_EXPONENT ? t : LOWEST_EXPONENT;
    t = t < HIGHEST_EXPONENT ? t : HIGHEST_EXPONENT;
    const double shifted = t + ROUNDER;
    const double g = (t - (shifted - ROUNDER)) * LN2;
    double series = exp_term(13);
    series = series * g + exp_term(12);
    series = series * g + exp_term(11);
    series = series * g + exp_term(10);
    series = series * g + exp_term(9);
    series = series * g + exp_term(8);
    series = series * g + exp_term(7);
    series = series * g + exp_term(6);
    series = series * g + exp_term(5);
    series = series * g + exp_term(4);
    series = series * g + exp_term(3);
    series = series * g + exp_term(2);
    series = series * g + exp_term(1);
    series = series * g + exp_term(0);
    return number_of((bits_of(shifted) << 52) + bits_of(series));
}

inline double power_of(double x, double exponent) {
    const double raised = exp2_of(exponent * log2_of(x));
    return x > 0.0 ? raised : 0.0;
}

void power(const double* x, std::int64_t n, double exponent, double* result) {
    if (exponent == 1.0) {
        for (std::int64_t i = 0; i < n; ++i) {
            const double raised = x[i] > LOWEST ? x[i] : LOWEST;
            result[i] = x[i] > 0.0 ? (raised < HIGHEST ? raised : HIGHEST) : 0.0;
        }
        return;
    }
    for (std::int64_t i = 0; i < n; ++i) result[i] = power_of(x[i], exponent);
}

double mass(const double* td, std::int64_t n, double eps, double alpha, double* result) {
    // Floats that are not negative are ordered like their bits, where NaN stands above infinity.
    std::int64_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        result[i] = std::fabs(td[i]) + eps;
        const auto bits = static_cast<std::int64_t>(bits_of(result[i]) & ~(std::uint64_t{1} << 63));
        largest = bits > largest ? bits : largest;
    }
    const double raw = number_of(static_cast<std::uint64_t>(largest));
    if (!(raw < INFINITE)) {
        for (std::int64_t i = 0; i < n; ++i) result[i] = 0.0;
        return NOT_A_NUMBER;
    }
    power(result, n, alpha, result);
    return raw;
}

void weights(const double* values, std::int64_t n, double reference, double beta, float* result) {
    if (beta == 1.0) {
        for (std::int64_t i = 0; i < n; ++i) {
            double ratio = reference / values[i];
            power(&ratio, 1, 1.0, &ratio);
            result[i] = static_cast<float>(ratio);
        }
        return;
    }
    for (std::int64_t i = 0; i < n; ++i) result[i] = static_cast<float>(power_of(reference / values[i], beta));
}

double smallest(const double* values, std::int64_t n) {
    double least = values[0];
    for (std::int64_t i = 1; i < n; ++i) least = values[i] < least ? values[i] : least;
    return least;
}
