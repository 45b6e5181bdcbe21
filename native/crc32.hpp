// CRC-32 as zlib computes it, eight bytes a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

inline uint32_t crc32(const char* data, size_t n) {
    static constexpr Crc32Tables TABLES = crc32_tables();
    uint32_t crc = ~0u;
    for (; n >= 8; n -= 8, data += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data, 8);  // little-endian, as all machines are that this is built for
        word ^= crc;
        crc = 0;
        for (size_t k = 0; k < 8; ++k) crc ^= TABLES[7 - k][word >> 8 * k & 255];
    }
    for (; n; --n, ++data) crc = crc >> 8 ^ TABLES[0][(crc ^ static_cast<uint8_t>(*data)) & 255];
    return ~crc;
}

}  // namespace relive
