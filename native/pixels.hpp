// Stacks whose frames lie behind: pixels that have an element of every frame. To be included within a build of the
// kernels.

#if defined(__AVX2__)
using Lanes = __m256i;
#define RELIVE_LANES(name, kind) _mm256_##name##_##kind
#elif defined(__SSE2__)
using Lanes = __m128i;
#define RELIVE_LANES(name, kind) _mm_##name##_##kind
#endif

#if defined(__SSE2__)
constexpr ptrdiff_t HALF = 16;  // bytes of a processor's lane; two of them work side by side where there is AVX2

// The lower, or higher, units of `UNIT` bytes of two vectors in turn.
template <size_t UNIT>
RELIVE_INLINE Lanes zip_low(Lanes one, Lanes other) {
    if constexpr (UNIT == 1) return RELIVE_LANES(unpacklo, epi8)(one, other);
    if constexpr (UNIT == 2) return RELIVE_LANES(unpacklo, epi16)(one, other);
    if constexpr (UNIT == 4) return RELIVE_LANES(unpacklo, epi32)(one, other);
    return RELIVE_LANES(unpacklo, epi64)(one, other);
}
template <size_t UNIT>
RELIVE_INLINE Lanes zip_high(Lanes one, Lanes other) {
    if constexpr (UNIT == 1) return RELIVE_LANES(unpackhi, epi8)(one, other);
    if constexpr (UNIT == 2) return RELIVE_LANES(unpackhi, epi16)(one, other);
    if constexpr (UNIT == 4) return RELIVE_LANES(unpackhi, epi32)(one, other);
    return RELIVE_LANES(unpackhi, epi64)(one, other);
}

RELIVE_INLINE Lanes loaded(const char* at) {
    Lanes bytes;
    std::memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

RELIVE_INLINE bool any_bit(Lanes bits) {
#if defined(__AVX2__)
    return !_mm256_testz_si256(bits, bits);
#else
    return _mm_movemask_epi8(_mm_cmpeq_epi8(bits, _mm_setzero_si128())) != 0xFFFF;
#endif
}

// Pixels of `step` bytes, of which up to WIDTH elements of SIZE bytes are looked at. A vector holds GROUP of them,
// those of one frame side by side; WIDTH vectors become as many frames of PIXELS elements.
template <size_t SIZE, int WIDTH>
struct Tile {
    static constexpr ptrdiff_t GROUP = HALF / ptrdiff_t(SIZE * WIDTH), PER_HALF = HALF / ptrdiff_t(SIZE);
    static constexpr ptrdiff_t PIXELS = PER_HALF * ptrdiff_t(sizeof(Lanes) / HALF);
    ptrdiff_t step;

#if defined(__AVX2__)
    __m256i order;

    explicit Tile(ptrdiff_t step_of) : step(step_of) {
        char from[HALF];
        for (ptrdiff_t i = 0; i < HALF; ++i) {
            const ptrdiff_t byte = i % ptrdiff_t(SIZE), pixel = i / ptrdiff_t(SIZE) % GROUP;
            const ptrdiff_t at = pixel * step + i / (ptrdiff_t(SIZE) * GROUP) * ptrdiff_t(SIZE) + byte;
            from[i] = char(at < HALF ? at : 0);  // of frames that are not there
        }
        order = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }

    RELIVE_INLINE Lanes load(const char* from) const {
        const auto half = [](const char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
        const __m256i both =
            _mm256_inserti128_si256(_mm256_castsi128_si256(half(from)), half(from + PER_HALF * step), 1);
        return GROUP == 1 ? both : _mm256_shuffle_epi8(both, order);
    }
#else
    explicit Tile(ptrdiff_t step_of) : step(step_of) {}

    RELIVE_INLINE Lanes load(const char* from) const { return pixels<GROUP>(from); }

    template <ptrdiff_t COUNT>
    RELIVE_INLINE Lanes pixels(const char* from) const {
        if constexpr (COUNT > 1) {
            const Lanes first = pixels<COUNT / 2>(from), second = pixels<COUNT / 2>(from + COUNT / 2 * step);
            return zip_low<SIZE * COUNT / 2>(first, second);
        } else if constexpr (SIZE * WIDTH == 16) {
            return loaded(from);
        } else if constexpr (SIZE * WIDTH == 8) {
            return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
        } else {
            int pixel = 0;
            std::memcpy(&pixel, from, SIZE * WIDTH);
            return _mm_cvtsi32_si128(pixel);
        }
    }
#endif

    // Hand the pixels from `from` on, frame by frame, to `job`: `count` frames from the k-th on; `at` is where in a
    // frame they are.
    template <typename Job>
    RELIVE_INLINE void turn(const char* from, ptrdiff_t k, ptrdiff_t count, ptrdiff_t at, Job& job) const {
        Lanes part[WIDTH];
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; ++i) part[i] = load(from + turned(i) * GROUP * step);
        zip<SIZE * GROUP>(part);
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; ++i) {
            if (i == count) return;
            job.all(k + i, at, part[i]);
        }
    }

private:
    // The number whose bits are in the opposite order: each pairing puts the two halves of all pixels in turn.
    static constexpr int turned(int i) {
        int out = 0;
        for (int bit = 1; bit < WIDTH; bit *= 2) out = 2 * out + (i & bit ? 1 : 0);
        return out;
    }

    template <size_t UNIT>
    static RELIVE_INLINE void zip(Lanes (&part)[WIDTH]) {
        if constexpr (UNIT < HALF) {
            Lanes next[WIDTH];
#pragma GCC unroll 8
            for (int i = 0; i < WIDTH / 2; ++i) {
                next[2 * i] = zip_low<UNIT>(part[i], part[i + WIDTH / 2]);
                next[2 * i + 1] = zip_high<UNIT>(part[i], part[i + WIDTH / 2]);
            }
            zip<2 * UNIT>(next);
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; ++i) part[i] = next[i];
        }
    }
};

// Returns how many pixels were done. A vector is read from each pixel on: the last ones are left over.
template <size_t SIZE, int WIDTH, typename Job>
ptrdiff_t walk_tiles(const Pixels& of, Job& told) {
    using Tiles = Tile<SIZE, WIDTH>;
    const ptrdiff_t size = ptrdiff_t(SIZE), frames = of.frames, step = frames * size;
    const Tiles tiles(step);
    const ptrdiff_t blocks = (frames + WIDTH - 1) / WIDTH;
    const ptrdiff_t reach = (Tiles::PIXELS - Tiles::GROUP) * step + (blocks - 1) * WIDTH * size + HALF;
    Job job = told;  // in registers
    ptrdiff_t done = 0;
    for (; done * step + reach <= of.count * step; done += Tiles::PIXELS)
        for (ptrdiff_t k = 0; k < frames; k += WIDTH)
            tiles.turn(of.data + done * step + k * size, k, frames - k < WIDTH ? frames - k : WIDTH, done * size, job);
    told = job;
    return done;
}
#endif

// Tells `job` of all elements, those of a frame in turn.
template <size_t SIZE, typename Job>
void walk_of(const Pixels& of, Job& job) {
    const ptrdiff_t size = ptrdiff_t(SIZE), step = of.frames * size;
    ptrdiff_t done = 0;
#if defined(__SSE2__)
    constexpr int MOST = int(HALF / size);
    if constexpr (MOST >= 2) {
        if (of.frames <= 2 || MOST == 2)
            done = walk_tiles<SIZE, 2>(of, job);
        else if constexpr (MOST >= 4) {
            if (of.frames <= 4 || MOST == 4)
                done = walk_tiles<SIZE, 4>(of, job);
            else if constexpr (MOST >= 8)
                done = of.frames <= 8 || MOST == 8 ? walk_tiles<SIZE, 8>(of, job) : walk_tiles<SIZE, MOST>(of, job);
        }
    }
#endif
    const ptrdiff_t some = (1 << 14) / step, together = some > 1 ? some : 1;  // they stay in the nearest cache
    for (; done < of.count; done += together) {
        const ptrdiff_t end = of.count - done < together ? of.count : done + together;
        for (ptrdiff_t k = 0; k < of.frames; ++k)
            for (ptrdiff_t i = done; i < end; ++i) job.template one<SIZE>(k, i * size, of.data + i * step + k * size);
    }
}

template <typename Job>
void walk(const Pixels& of, Job& job) {
    switch (of.size) {
        case 1:
            return walk_of<1>(of, job);
        case 2:
            return walk_of<2>(of, job);
        case 4:
            return walk_of<4>(of, job);
        case 8:
            return walk_of<8>(of, job);
        default:
            return walk_of<16>(of, job);
    }
}

struct Split {
    char* const* to;
#if defined(__SSE2__)
    RELIVE_INLINE void all(ptrdiff_t k, ptrdiff_t at, Lanes part) {
        if (to[k]) std::memcpy(to[k] + at, &part, sizeof part);
    }
#endif
    template <size_t SIZE>
    RELIVE_INLINE void one(ptrdiff_t k, ptrdiff_t at, const char* element) {
        if (to[k]) std::memcpy(to[k] + at, element, SIZE);
    }
};

void split(const Pixels& of, char* const* frames) {
    Split job{frames};
    walk(of, job);
}

struct Compare {
    const char* const* wanted;
    bool differ = false;
#if defined(__SSE2__)
    Lanes found = {};
    RELIVE_INLINE void all(ptrdiff_t k, ptrdiff_t at, Lanes part) {
        if (wanted[k]) found |= part ^ loaded(wanted[k] + at);
    }
#endif
    template <size_t SIZE>
    RELIVE_INLINE void one(ptrdiff_t k, ptrdiff_t at, const char* element) {
        differ |= wanted[k] && std::memcmp(wanted[k] + at, element, SIZE) != 0;
    }
};

bool shows(const Pixels& of, const char* const* frames) {
    Compare job{frames};
    walk(of, job);
#if defined(__SSE2__)
    job.differ |= any_bit(job.found);
#endif
    return !job.differ;
}

bool follows(const Pixels& now, const char* next) {
    const ptrdiff_t size = ptrdiff_t(now.size), step = now.frames * size, shared = step - size, n = now.count * step;
    ptrdiff_t i = 0;
#if defined(__SSE2__)
    // Bytes are compared as they lie, and those of each pixel's newest element hidden.
    constexpr ptrdiff_t MOST = 256, WIDE = sizeof(Lanes), TOGETHER = 4 * WIDE;
    if (step <= MOST && size + WIDE <= n) {
        char shown[MOST + TOGETHER];
        for (ptrdiff_t k = 0; k < step + TOGETHER; ++k) shown[k] = k < step ? (k < shared ? -1 : 0) : shown[k - step];
        const auto differ = [&](ptrdiff_t at, ptrdiff_t phase) {
            return (loaded(now.data + size + at) ^ loaded(next + at)) & loaded(shown + phase);
        };
        const ptrdiff_t move = TOGETHER % step;
        Lanes found = differ(0, 0);
        i = -reinterpret_cast<uintptr_t>(next) % WIDE;
        for (ptrdiff_t phase = i % step; i + size + TOGETHER <= n; i += TOGETHER) {
#pragma GCC unroll 4
            for (ptrdiff_t k = 0; k < TOGETHER; k += WIDE) found |= differ(i + k, phase + k);
            phase += phase + move < step ? move : move - step;
        }
        if (any_bit(found)) return false;
    }
#endif
    for (ptrdiff_t pixel = i / step * step; pixel < n; pixel += step)
        if (std::memcmp(now.data + pixel + size, next + pixel, size_t(shared)) != 0) return false;
    return true;
}
