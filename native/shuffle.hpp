// The order of uniforms: whose items an epoch goes through. Knows numbers, no Python object.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

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
    int64_t item(uint64_t token) const { return above_ ? first_ + int64_t(token) : items_[inside(token)]; }
    uint64_t place(uint64_t token) const {
        return inside(above_ ? uint64_t(std::lower_bound(items_, items_ + n_, item(token)) - items_) : token);
    }

    static constexpr int MOST = 39;  // below the bits that keys are sorted by
    int bits;

private:
    const int64_t* items_;
    int64_t n_, first_;
    bool above_;

    // Whatever somebody wrote over the keys meanwhile.
    uint64_t inside(uint64_t place) const { return std::min(place, uint64_t(n_ - 1)); }
};

constexpr int64_t MANY_NUMBERS = 1 << 18;

// Items in the order of their numbers in [0, 1), equal ones as they come. Of each number its first bits and a token of
// its item make one integer, and these are sorted by three bytes: many by the first one, and then a part that lies in
// the caches at a time, when it is asked for.
class Order {
public:
    // Items and numbers are read until all are in their places in `out`.
    Order(const int64_t* items, const double* numbers, int64_t n, int64_t* out)
        : tokens_(items, n), numbers_(numbers), n_(n), keys_(reinterpret_cast<uint64_t*>(out)) {
        const double scale = double(uint64_t(1) << (63 - tokens_.bits));
        // By way of a signed integer, to which a processor converts in one step.
        const auto key_of = [=, tokens = tokens_](int64_t i) {
            return uint64_t(int64_t(numbers[i] * scale)) << tokens.bits | tokens.of(i);
        };
        if (!many()) {
            room_ = std::make_unique_for_overwrite<uint64_t[]>(size_t(n));
            for (int64_t i = 0; i < n; ++i) room_[size_t(i)] = key_of(i);
            for (const int byte : {0, 1, 2})
                by_byte(byte == 1 ? keys_ : room_.get(), byte == 1 ? room_.get() : keys_, n, LOW + 8 * byte, ends_);
            ends_[0] = n;
            upto(n);
            return;
        }
        for (int64_t i = 0; i < n; ++i) ++ends_[int(numbers[i] * 256)];
        room_ = std::make_unique_for_overwrite<uint64_t[]>(size_t(*std::max_element(ends_, ends_ + 256)));
        int64_t sum = 0;
        for (int64_t& end : ends_) sum += std::exchange(end, sum);
        for (int64_t i = 0; i < n; ++i) {
            const uint64_t key = key_of(i);
            keys_[ends_[key >> (LOW + 16)]++] = key;
        }
    }

    // Put the first `count` items, and perhaps more, to their places.
    void upto(int64_t count) {
        int64_t inner[256];
        for (; done_ < std::min(count, n_); done_ = ends_[part_++]) {
            uint64_t *const first = keys_ + done_, *const last = keys_ + ends_[part_];
            if (many()) {
                by_byte(first, room_.get(), last - first, LOW, inner);
                by_byte(room_.get(), first, last - first, LOW + 8, inner);
            }
            settle(first, last);
        }
    }

private:
    static constexpr int LOW = Tokens::MOST;

    const Tokens tokens_;
    const double* const numbers_;
    const int64_t n_;
    uint64_t* const keys_;
    std::unique_ptr<uint64_t[]> room_;
    int64_t ends_[256] = {}, done_ = 0, part_ = 0;

    bool many() const { return n_ > MANY_NUMBERS; }

    // From keys that are in order but for what follows the three bytes to items.
    void settle(uint64_t* const first, uint64_t* const last) const {
        const int bits = tokens_.bits;
        const uint64_t mask = (uint64_t(1) << bits) - 1;
        for (uint64_t* key = first + 1; key < last; ++key) {
            if ((*key ^ key[-1]) >> LOW) continue;
            uint64_t* end = key + 1;
            while (end < last && !((*end ^ *key) >> LOW)) ++end;
            std::sort(key - 1, end, [&](uint64_t a, uint64_t b) {
                if (a >> bits != b >> bits) return a < b;
                // They may differ in later bits.
                const double x = numbers_[tokens_.place(a & mask)], y = numbers_[tokens_.place(b & mask)];
                return x != y ? x < y : a < b;
            });
            key = end;
        }
        const Tokens tokens = tokens_;
        for (uint64_t* key = first; key < last; ++key) *key = uint64_t(tokens.item(*key & mask));
    }
};

}  // namespace relive
