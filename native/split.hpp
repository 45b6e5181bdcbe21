// Takes stacks apart whose frames lie behind: pixels that have an element of every frame. To be included within a
// build of the kernels.

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
        } else {
            if constexpr (SIZE * WIDTH == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
            if constexpr (SIZE * WIDTH == 8) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
            int pixel = 0;
            std::memcpy(&pixel, from, SIZE * WIDTH);
            return _mm_cvtsi32_si128(pixel);
        }
    }
#endif

    // Frame k of the pixels from `from` on goes to `to + k * apart`, for `count` frames.
    RELIVE_INLINE void turn(const char* from, char* to, ptrdiff_t apart, ptrdiff_t count) const {
        Lanes part[WIDTH];
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; ++i) part[i] = load(from + turned(i) * GROUP * step);
        zip<SIZE * GROUP>(part);
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; ++i) {
            if (i == count) return;
            std::memcpy(to + i * apart, &part[i], sizeof(Lanes));
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
template <size_t SIZE, int WIDTH>
ptrdiff_t split_tiles(const char* from, ptrdiff_t n, ptrdiff_t frames, char* to) {
    const ptrdiff_t size = ptrdiff_t(SIZE), step = frames * size;
    using Tiles = Tile<SIZE, WIDTH>;
    const Tiles tiles(step);
    const ptrdiff_t blocks = (frames + WIDTH - 1) / WIDTH;
    const ptrdiff_t reach = (Tiles::PIXELS - Tiles::GROUP) * step + (blocks - 1) * WIDTH * size + HALF;
    ptrdiff_t done = 0;
    for (; done * step + reach <= n * step; done += Tiles::PIXELS)
        for (ptrdiff_t k = 0; k < frames; k += WIDTH)
            tiles.turn(from + done * step + k * size, to + (k * n + done) * size, n * size,
                       frames - k < WIDTH ? frames - k : WIDTH);
    return done;
}
#endif

template <size_t SIZE>
void split_of(const char* from, ptrdiff_t n, ptrdiff_t frames, char* to) {
    const ptrdiff_t size = ptrdiff_t(SIZE), step = frames * size;
    ptrdiff_t done = 0;
#if defined(__SSE2__)
    constexpr int MOST = int(HALF / size);
    if constexpr (MOST >= 2) {
        if (frames <= 2 || MOST == 2)
            done = split_tiles<SIZE, 2>(from, n, frames, to);
        else if constexpr (MOST >= 4) {
            if (frames <= 4 || MOST == 4)
                done = split_tiles<SIZE, 4>(from, n, frames, to);
            else if constexpr (MOST >= 8)
                done = frames <= 8 || MOST == 8 ? split_tiles<SIZE, 8>(from, n, frames, to)
                                                : split_tiles<SIZE, MOST>(from, n, frames, to);
        }
    }
#endif
    const ptrdiff_t some = (1 << 14) / step, together = some > 1 ? some : 1;  // they stay in the nearest cache
    for (; done < n; done += together) {
        const ptrdiff_t end = n - done < together ? n : done + together;
        for (ptrdiff_t k = 0; k < frames; ++k)
            for (ptrdiff_t i = done; i < end; ++i)
                std::memcpy(to + (k * n + i) * size, from + i * step + k * size, SIZE);
    }
}

void split(const char* from, std::int64_t n, std::int64_t frames, size_t size, char* to) {
    switch (size) {
        case 1:
            return split_of<1>(from, n, frames, to);
        case 2:
            return split_of<2>(from, n, frames, to);
        case 4:
            return split_of<4>(from, n, frames, to);
        case 8:
            return split_of<8>(from, n, frames, to);
        default:
            return split_of<16>(from, n, frames, to);
    }
}
