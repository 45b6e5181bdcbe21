// The order of uniforms: whose items an epoch goes through. Knows numbers, no Python object.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace relive {

// Sort by one byte of each number, which keeps the order of those that have the same. `ends` gets where each byte's
// numbers end.
inline void by_byte(const uint64_t* from, uint64_t* to, int64_t n, int shift, int64_t* ends) {
    std::fill_n(ends, 256, 0);
    for (int64_t i = 0; i < n; ++i) ++ends[from[i] >> shift & 255];
    int64_t sum = 0;
    for (int byte = 0; byte < 256; ++byte) sum += std::exchange(ends[byte], sum);
    for (int64_t i = 0; i < n; ++i) to[ends[from[i] >> shift & 255]++] = from[i];
}

// What a key has of an item behind the bits of its number: of ascending items, which they mostly are, how much it is
// above the first one, and so no item has to be looked up in the end; else its place.
class Tokens {
public:
    Tokens(const int64_t* items, int64_t n) : items_(items), n_(n) {
        bool ascends = n > 0;
        for (int64_t i = 1; i < n; ++i) ascends &= items[i - 1] < items[i];
        const uint64_t span = ascends ? uint64_t(items[n - 1]) - uint64_t(items[0]) : 0;
        above_ = ascends && std::bit_width(span) < MOST;
        first_ = above_ ? items[0] : 0;
        bits = std::bit_width(above_ ? span : uint64_t(n));
    }

    uint64_t of(int64_t i) const { return above_ ? uint64_t(items_[i] - first_) : uint64_t(i); }
    int64_t item(uint64_t token) const { return above_ ? first_ + int64_t(token) : items_[token]; }
    int64_t place(uint64_t token) const {
        return above_ ? std::lower_bound(items_, items_ + n_, item(token)) - items_ : int64_t(token);
    }

    static constexpr int MOST = 39;  // below the bits that keys are sorted by
    int bits;

private:
    const int64_t* items_;
    int64_t n_, first_;
    bool above_;
};

constexpr int64_t MANY_NUMBERS = 1 << 18;

// Put the items in the order of their numbers in [0, 1), equal ones as they come. Of each number its first bits and a
// token of its item make one integer, and these are sorted by three bytes: many by the first one, and then a part that
// lies in the caches at a time. `room` is that for `MANY_NUMBERS`, or as many as there are.
inline void shuffle(const int64_t* items, const double* numbers, int64_t n, uint64_t* room, int64_t* out) {
    constexpr int low = Tokens::MOST;
    const Tokens tokens(items, n);
    const int bits = tokens.bits;
    const uint64_t mask = (uint64_t(1) << bits) - 1;
    const double scale = double(uint64_t(1) << (63 - bits));
    auto* const parts = reinterpret_cast<uint64_t*>(out);
    const auto key_of = [&](int64_t i) { return uint64_t(numbers[i] * scale) << bits | tokens.of(i); };
    const bool many = n > MANY_NUMBERS;
    int64_t ends[256] = {}, inner[256];
    std::vector<uint64_t> larger;  // where numbers are not spread evenly
    if (many) {
        for (int64_t i = 0; i < n; ++i) ++ends[int(numbers[i] * 256)];
        if (const int64_t most = *std::max_element(ends, ends + 256); most > MANY_NUMBERS) {
            larger.resize(size_t(most));
            room = larger.data();
        }
        int64_t sum = 0;
        for (int64_t& end : ends) sum += std::exchange(end, sum);
        for (int64_t i = 0; i < n; ++i) {
            const uint64_t key = key_of(i);
            parts[ends[key >> (low + 16)]++] = key;
        }
    } else {
        for (int64_t i = 0; i < n; ++i) room[i] = key_of(i);
        for (const int byte : {0, 1, 2})
            by_byte(byte == 1 ? parts : room, byte == 1 ? room : parts, n, low + 8 * byte, ends);
        ends[0] = n;
    }
    for (int64_t begin = 0, part = 0; begin < n; begin = ends[part++]) {
        uint64_t *const first = parts + begin, *const last = parts + ends[part];
        if (many) {
            by_byte(first, room, last - first, low, inner);
            by_byte(room, first, last - first, low + 8, inner);
        }
        for (uint64_t* key = first + 1; key < last; ++key) {
            if ((*key ^ key[-1]) >> low) continue;
            uint64_t* end = key + 1;
            while (end < last && !((*end ^ *key) >> low)) ++end;
            std::sort(key - 1, end, [&](uint64_t a, uint64_t b) {
                if (a >> bits != b >> bits) return a < b;
                // They may differ in later bits.
                const double x = numbers[tokens.place(a & mask)], y = numbers[tokens.place(b & mask)];
                return x != y ? x < y : a < b;
            });
            key = end;
        }
        for (uint64_t* key = first; key < last; ++key) *key = uint64_t(tokens.item(*key & mask));
    }
}

}  // namespace relive
