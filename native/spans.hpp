// Columns of one record, whose lines are fetched once for all of them.
#pragma once

#include <algorithm>
#include <vector>

#include "lanes.hpp"

namespace relive {

struct Span {
    char* data;
    size_t bytes, stride;
    size_t pick;  // which list of rows it is fetched for
};

inline void add_to_spans(std::vector<Span>& spans, const Column& column, size_t pick) {
    for (Span& span : spans) {
        char* low = std::min(span.data, column.data);
        char* high = std::max(span.data + span.bytes, column.data + column.row);
        if (span.pick != pick || span.stride != column.stride || size_t(high - low) > span.stride) continue;
        span.data = low;
        span.bytes = size_t(high - low);
        return;
    }
    spans.push_back({column.data, column.row, column.stride, pick});
}

}  // namespace relive
