// The three things done to one node, a line of eight float64: search it, add it up, take its smallest positive entry.
// Included by kernels.cpp inside the namespace of one instruction set.
//
// The sum is ((0+1)+(2+3))+((4+5)+(6+7)) in every version, and the inclusive scan takes steps of 1, 2 and 4, so that
// its last entry has the bits of the sum: a target below a node's stored sum is below the end of its scan.

// Walk the node in sequence: it cannot stop on a zero, and falls back to the last positive child. Hardly ever needed.
RELIVE_COLD int search_exactly(const double* x, double& target) {
    double before = 0.0;
    int last = 0;
    for (int j = 0; j < FAN_OUT; ++j) {
        if (!(x[j] > 0.0)) continue;
        const double after = before + x[j];
        if (after > target) {
            target -= before;
            return j;
        }
        before = after;
        last = j;
    }
    target = x[last];
    return last;
}

// `scan` is room for search(): scan[7] is 0, the inclusive scan goes to scan[8..15], a line of its own.
struct alignas(64) Scan {
    double entries[16];
    Scan() { entries[7] = 0.0; }
};

// Puts the inclusive scan of a node where `scan` has it; how many of its entries are not above the target.

#if defined(__AVX512F__)

inline int passed_by(double target, const double* x, Scan& scan) {
    const __m512i zero = _mm512_setzero_si512();
    __m512d s = _mm512_loadu_pd(x);
    s = _mm512_add_pd(s, _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(s), zero, 7)));
    s = _mm512_add_pd(s, _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(s), zero, 6)));
    s = _mm512_add_pd(s, _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(s), zero, 4)));
    _mm512_store_pd(scan.entries + 8, s);
    return __builtin_popcount(_mm512_cmp_pd_mask(s, _mm512_set1_pd(target), _CMP_LE_OQ));
}

#elif defined(__AVX2__)

inline int passed_by(double target, const double* x, Scan& scan) {
    const __m256d low = _mm256_loadu_pd(x), high = _mm256_loadu_pd(x + 4);
    // Steps of 1: [0 x0 x1 x2], [x3 x4 x5 x6].
    const __m256d zero_low = _mm256_permute2f128_pd(low, low, 0x08), middle = _mm256_permute2f128_pd(low, high, 0x21);
    __m256d a = _mm256_add_pd(low, _mm256_shuffle_pd(zero_low, low, 0x4));
    __m256d b = _mm256_add_pd(high, _mm256_shuffle_pd(middle, high, 0x5));
    // Steps of 2, then of 4.
    const __m256d a_up = _mm256_permute2f128_pd(a, a, 0x08), b_up = _mm256_permute2f128_pd(a, b, 0x21);
    a = _mm256_add_pd(a, a_up);
    b = _mm256_add_pd(_mm256_add_pd(b, b_up), a);
    _mm256_store_pd(scan.entries + 8, a);
    _mm256_store_pd(scan.entries + 12, b);
    const __m256d r = _mm256_set1_pd(target);
    return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_pd(_mm256_cmp_pd(a, r, _CMP_LE_OQ)) |
                                                    _mm256_movemask_pd(_mm256_cmp_pd(b, r, _CMP_LE_OQ)) << 4));
}

#elif defined(__SSE2__)

inline int passed_by(double target, const double* x, Scan& scan) {
    const __m128d x0 = _mm_loadu_pd(x), x1 = _mm_loadu_pd(x + 2), x2 = _mm_loadu_pd(x + 4), x3 = _mm_loadu_pd(x + 6);
    // Steps of 1, of 2 and of 4.
    const __m128d a0 = _mm_add_pd(x0, _mm_shuffle_pd(_mm_setzero_pd(), x0, 0));
    const __m128d a1 = _mm_add_pd(x1, _mm_shuffle_pd(x0, x1, 1));
    const __m128d a2 = _mm_add_pd(x2, _mm_shuffle_pd(x1, x2, 1));
    const __m128d a3 = _mm_add_pd(x3, _mm_shuffle_pd(x2, x3, 1));
    const __m128d b1 = _mm_add_pd(a1, a0);
    const __m128d b2 = _mm_add_pd(_mm_add_pd(a2, a1), a0);
    const __m128d b3 = _mm_add_pd(_mm_add_pd(a3, a2), b1);
    _mm_store_pd(scan.entries + 8, a0);
    _mm_store_pd(scan.entries + 10, b1);
    _mm_store_pd(scan.entries + 12, b2);
    _mm_store_pd(scan.entries + 14, b3);
    const __m128d r = _mm_set1_pd(target);
    // A mask is -1 as an integer.
    const auto passed = [r](__m128d entries) { return _mm_castpd_si128(_mm_cmple_pd(entries, r)); };
    const __m128i below = _mm_add_epi64(_mm_add_epi64(passed(a0), passed(b1)), _mm_add_epi64(passed(b2), passed(b3)));
    return -_mm_cvtsi128_si32(_mm_add_epi64(below, _mm_unpackhi_epi64(below, below)));
}

#else

inline int passed_by(double target, const double* x, Scan& scan) {
    double* s = scan.entries + 8;
    double a[FAN_OUT], b[FAN_OUT];
    a[0] = x[0];
    for (int j = 1; j < FAN_OUT; ++j) a[j] = x[j] + x[j - 1];
    b[0] = a[0];
    b[1] = a[1];
    for (int j = 2; j < FAN_OUT; ++j) b[j] = a[j] + a[j - 2];
    for (int j = 0; j < 4; ++j) s[j] = b[j];
    for (int j = 4; j < FAN_OUT; ++j) s[j] = b[j] + b[j - 4];
    int count = 0;
    for (int j = 0; j < FAN_OUT; ++j) count += s[j] <= target;
    return count;
}

#endif

// The child in which `target` lies; `target` becomes relative to that child. Counting the scan's entries that are
// not above the target needs no branch; rounding can lead past the end or, as a scan in pairs need not be monotone, on
// to a zero: then the node is walked in sequence.
inline int search(const double* x, double& target, Scan& scan) {
    const int child = passed_by(target, x, scan);
    if (RELIVE_UNLIKELY(child == FAN_OUT || !(x[child & 7] > 0.0))) return search_exactly(x, target);
    target -= scan.entries[7 + child];
    return child;
}

// Whether that child is the one; then `target` becomes relative to it. Nothing waits for the count, other than in
// `search`: the child is known already.
inline bool leads_to(int child, const double* x, double& target, Scan& scan) {
    if (passed_by(target, x, scan) != child || !(x[child] > 0.0)) return false;
    target -= scan.entries[7 + child];
    return true;
}

// One entry of a node, written as a whole line, which the next draws read as one.
inline void replace(double* x, int j, double value) {
#if defined(__AVX512F__)
    const __m512d changed =
        _mm512_mask_mov_pd(_mm512_loadu_pd(x), static_cast<__mmask8>(1u << j), _mm512_set1_pd(value));
    _mm512_storeu_pd(x, changed);
#else
    x[j] = value;
#endif
}

// Copies a node of leaves with zeros for hidden ones, which are negative.
inline void copy_shown(const double* x, double* to) {
#if defined(__AVX512F__)
    _mm512_store_pd(to, _mm512_max_pd(_mm512_loadu_pd(x), _mm512_setzero_pd()));
#elif defined(__AVX2__)
    _mm256_store_pd(to, _mm256_max_pd(_mm256_loadu_pd(x), _mm256_setzero_pd()));
    _mm256_store_pd(to + 4, _mm256_max_pd(_mm256_loadu_pd(x + 4), _mm256_setzero_pd()));
#else
    for (int j = 0; j < FAN_OUT; ++j) to[j] = x[j] > 0.0 ? x[j] : 0.0;
#endif
}

// THRESHOLD + 7 - j is a line of zeros with infinity at entry j: what exceeds it is positive and not entry j.
alignas(64) constexpr double THRESHOLD[16] = {0, 0, 0, 0, 0, 0, 0, INFINITE, 0, 0, 0, 0, 0, 0, 0, 0};
constexpr int NONE = -1;

// The smallest positive entry but the one at `skip` (NONE: of all), infinity if there is none.

#if defined(__AVX2__)

inline double sum8(const double* x) {
    const __m256d low = _mm256_loadu_pd(x), high = _mm256_loadu_pd(x + 4);
    // [0+1, 4+5, 2+3, 6+7]
    const __m256d pairs = _mm256_add_pd(_mm256_unpacklo_pd(low, high), _mm256_unpackhi_pd(low, high));
    const __m128d fours = _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
    return _mm_cvtsd_f64(_mm_add_sd(fours, _mm_unpackhi_pd(fours, fours)));
}

inline double min8(const double* x, int skip) {
    const double* threshold = THRESHOLD + 7 - skip;
    const __m256d none = _mm256_set1_pd(INFINITE), low = _mm256_loadu_pd(x), high = _mm256_loadu_pd(x + 4);
    const __m256d low_counts = _mm256_cmp_pd(low, _mm256_loadu_pd(threshold), _CMP_GT_OQ);
    const __m256d high_counts = _mm256_cmp_pd(high, _mm256_loadu_pd(threshold + 4), _CMP_GT_OQ);
    const __m256d four =
        _mm256_min_pd(_mm256_blendv_pd(none, low, low_counts), _mm256_blendv_pd(none, high, high_counts));
    const __m128d two = _mm_min_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
}

#elif defined(__SSE2__)

inline double sum8(const double* x) {
    const __m128d x0 = _mm_loadu_pd(x), x1 = _mm_loadu_pd(x + 2), x2 = _mm_loadu_pd(x + 4), x3 = _mm_loadu_pd(x + 6);
    const __m128d low = _mm_add_pd(_mm_unpacklo_pd(x0, x1), _mm_unpackhi_pd(x0, x1));   // [0+1, 2+3]
    const __m128d high = _mm_add_pd(_mm_unpacklo_pd(x2, x3), _mm_unpackhi_pd(x2, x3));  // [4+5, 6+7]
    const __m128d fours = _mm_add_pd(_mm_unpacklo_pd(low, high), _mm_unpackhi_pd(low, high));
    return _mm_cvtsd_f64(_mm_add_sd(fours, _mm_unpackhi_pd(fours, fours)));
}

inline double min8(const double* x, int skip) {
    const double* threshold = THRESHOLD + 7 - skip;
    const __m128d none = _mm_set1_pd(INFINITE);
    __m128d two = none;
    for (int j = 0; j < FAN_OUT; j += 2) {
        const __m128d pair = _mm_loadu_pd(x + j), counts = _mm_cmpgt_pd(pair, _mm_loadu_pd(threshold + j));
        two = _mm_min_pd(two, _mm_or_pd(_mm_and_pd(counts, pair), _mm_andnot_pd(counts, none)));
    }
    return _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
}

#else

inline double sum8(const double* x) { return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])); }

inline double min8(const double* x, int skip) {
    const double* threshold = THRESHOLD + 7 - skip;
    double smallest = INFINITE;
    for (int j = 0; j < FAN_OUT; ++j) {
        const double value = x[j] > threshold[j] ? x[j] : INFINITE;
        smallest = value < smallest ? value : smallest;
    }
    return smallest;
}

#endif

// The sum of a node whose entry `j` is to be `value`: the pairs of sum8, some with their sides swapped. Only the three
// additions of the last line wait for `value`.
inline double sum8_with(const double* x, int j, double value) {
    const int pair = (j ^ 2) & 6, four = (j ^ 4) & 4;
    const double two = x[pair] + x[pair + 1];
    const double others = (x[four] + x[four + 1]) + (x[four + 2] + x[four + 3]);
    return ((value + x[j ^ 1]) + two) + others;
}
