// Powers of priorities by one fixed sequence of float64 operations, the one in relive/_ring/kernels_numpy/power.py,
// which explains it. Plain loops that the compiler turns into vectors. Included by kernels.cpp inside the namespace of
// one instruction set.

constexpr double LOWEST_EXPONENT = -1000.0, HIGHEST_EXPONENT = 960.0;
constexpr double LOWEST = 0x1p-1000, HIGHEST = 0x1p960;
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

// log2((1 + s) / (1 - s)) near 0.
inline double log2_series(double s) {
    const double z = s * s;
    double series = 0.2429160853987535;
    series = series * z + 0.2614442493522915;
    series = series * z + 0.32061638813224547;
    series = series * z + 0.4121984020482752;
    series = series * z + 0.5770780172463286;
    series = series * z + 0.9617966939243345;
    series = series * z + 2.885390081777927;
    return s * series;
}

inline double log2_of(double x) {
    const std::uint64_t bits = bits_of(x > 0x1p-1022 ? x : 0x1p-1022) + (ONE - HALF_ROOT);
    // The exponent as a float64 without a conversion, which AVX2 has none of: 2**52 + k has k in its low bits.
    const double exponent = number_of((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0);
    const double mantissa = number_of((bits & MANTISSA) + HALF_ROOT);
    return exponent + log2_series((mantissa - 1.0) / (mantissa + 1.0));
}

// (2**f - 1) / f, for f up to a half of either sign.
inline double exp2_series(double f) {
    double series = 7.070977866508138e-09;
    series = series * f + 1.0205905413765595e-07;
    series = series * f + 1.3215451633221434e-06;
    series = series * f + 1.5252672924850737e-05;
    series = series * f + 0.00015403530424776529;
    series = series * f + 0.0013333558200794592;
    series = series * f + 0.009618129107618665;
    series = series * f + 0.05550410866465167;
    series = series * f + 0.24022650695910075;
    return series * f + 0.6931471805599462;
}

inline double exp2_of(double t) {
    t = t > LOWEST_EXPONENT ? t : LOWEST_EXPONENT;
    t = t < HIGHEST_EXPONENT ? t : HIGHEST_EXPONENT;
    const double shifted = t + ROUNDER;
    const double f = t - (shifted - ROUNDER);
    return number_of((bits_of(shifted) << 52) + bits_of(exp2_series(f) * f + 1.0));
}

inline double power_of(double x, double exponent) {
    const double raised = exp2_of(exponent * log2_of(x));
    return x > 0.0 ? raised : 0.0;
}

// The power of exponent 1: exact but for the limits.
inline double limited(double x) {
    const double raised = x > LOWEST ? x : LOWEST;
    return x > 0.0 ? (raised < HIGHEST ? raised : HIGHEST) : 0.0;
}

void power(const double* x, std::int64_t n, double exponent, double* result) {
    if (exponent == 1.0)
        for (std::int64_t i = 0; i < n; ++i) result[i] = limited(x[i]);
    else
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
    if (beta == 1.0)
        for (std::int64_t i = 0; i < n; ++i) result[i] = static_cast<float>(limited(reference / values[i]));
    else
        for (std::int64_t i = 0; i < n; ++i) result[i] = static_cast<float>(power_of(reference / values[i], beta));
}

double smallest(const double* values, std::int64_t n) {
    double least[FAN_OUT];
    for (int j = 0; j < FAN_OUT; ++j) least[j] = values[0];
    std::int64_t i = 0;
    for (; i + FAN_OUT <= n; i += FAN_OUT)
        for (int j = 0; j < FAN_OUT; ++j) least[j] = values[i + j] < least[j] ? values[i + j] : least[j];
    for (; i < n; ++i) least[0] = values[i] < least[0] ? values[i] : least[0];
    for (int j = 1; j < FAN_OUT; ++j) least[0] = least[j] < least[0] ? least[j] : least[0];
    return least[0];
}

// What draws by age need, for t >= 0 and z < 1, in place: 2**-t, 1 - 2**-t, and the t of which that is z. Also where t
// is tiny, to full precision.
void decay(double* t, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) t[i] = exp2_of(-t[i]);
}

void covered(double* t, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const double f = t[i] < 0.5 ? -t[i] : 0.0, far = 1.0 - exp2_of(-t[i]);
        t[i] = t[i] < 0.5 ? -(f * exp2_series(f)) : far;
    }
}

void reached(double* z, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const double near = -log2_series(-z[i] / (2.0 - z[i])), far = -log2_of(1.0 - z[i]);
        z[i] = z[i] < 0.25 ? near : far;
    }
}
