// The order's algorithms. Included by kernels.cpp inside the namespace of one instruction set.
//
// Two neighbours below one parent have at least JOIN members together, which bounds how many nodes there can be: see
// `Pools` in ranks.hpp.

constexpr int JOIN = WIDTH - 2;
constexpr int PACKED = WIDTH - 2;   // what stays in a leaf that is split because something is appended
constexpr std::int64_t AHEAD = 32;  // slots whose nodes are fetched together

// Six things done to a node's numbers: count those that are not below a number, in `keys` or in `left`; find the place
// of a member (what stands behind the last one may have the same number); add to all up to a place; open and close one.

#if defined(__AVX512F__)

inline int not_below(const double* keys, double key) {
    const __m512d wanted = _mm512_set1_pd(key);
    return __builtin_popcount(_mm512_cmp_pd_mask(_mm512_loadu_pd(keys), wanted, _CMP_GE_OQ)) +
           __builtin_popcount(_mm512_cmp_pd_mask(_mm512_loadu_pd(keys + 8), wanted, _CMP_GE_OQ));
}

inline int not_below(const std::int32_t* left, std::int32_t slots) {
    return __builtin_popcount(_mm512_cmpge_epi32_mask(_mm512_loadu_si512(left), _mm512_set1_epi32(slots)));
}

inline int place_of(const Leaf& node, std::int32_t member) {
    return __builtin_ctz(_mm512_cmpeq_epi32_mask(_mm512_loadu_si512(node.members), _mm512_set1_epi32(member)));
}

inline void add_to(std::int32_t* left, int last, std::int32_t change) {
    const __m512i old = _mm512_loadu_si512(left);
    const auto which = static_cast<__mmask16>((2u << last) - 1);
    _mm512_storeu_si512(left, _mm512_mask_add_epi32(old, which, old, _mm512_set1_epi32(change)));
}

// The numbers of a line, in memory of which WIDTH places count, moved up or down by one from a place on.
inline void open_at(std::int32_t* places, int at, std::int32_t value) {
    const __m512i old = _mm512_loadu_si512(places);
    const auto used = static_cast<__mmask16>((1u << WIDTH) - 1), from = static_cast<__mmask16>(used & (~0u << at));
    const auto here = static_cast<__mmask16>(1u << at);
    const __m512i moved = _mm512_mask_alignr_epi32(old, from, old, old, 15);
    _mm512_storeu_si512(places, _mm512_mask_set1_epi32(moved, here, value));
}

inline void close_at(std::int32_t* places, int at) {
    const __m512i old = _mm512_loadu_si512(places);
    const auto used = static_cast<__mmask16>((1u << WIDTH) - 1), from = static_cast<__mmask16>(used & (~0u << at));
    const __m512i moved = _mm512_mask_alignr_epi32(old, from, old, old, 1);
    _mm512_storeu_si512(places, _mm512_mask_set1_epi32(moved, static_cast<__mmask16>(1u << (WIDTH - 1)), 0));
}

inline void open_at(double* places, int at, double value) {
    const __m512i low = _mm512_loadu_si512(places), high = _mm512_loadu_si512(places + 8);
    const unsigned from = ~0u << at & ((1u << WIDTH) - 1);
    const __m512i first = _mm512_mask_alignr_epi64(low, static_cast<__mmask8>(from), low, low, 7);
    const __m512i second = _mm512_mask_alignr_epi64(high, static_cast<__mmask8>(from >> 8), high, low, 7);
    _mm512_storeu_si512(places, first);
    _mm512_storeu_si512(places + 8, second);
    places[at] = value;
}

inline void close_at(double* places, int at) {
    const __m512i low = _mm512_loadu_si512(places), high = _mm512_loadu_si512(places + 8);
    const unsigned from = ~0u << at & ((1u << WIDTH) - 1);
    const __m512i first = _mm512_mask_alignr_epi64(low, static_cast<__mmask8>(from), high, low, 1);
    const __m512i second = _mm512_mask_alignr_epi64(high, static_cast<__mmask8>(from >> 8), high, high, 1);
    _mm512_storeu_si512(places, first);
    _mm512_storeu_si512(places + 8, second);  // the first unused place is 0
}

#else

template <typename T>
inline int not_below(const T* numbers, T number) {
    int count = 0;
    for (int j = 0; j < PLACES; ++j) count += numbers[j] >= number;
    return count;
}

inline int place_of(const Leaf& node, std::int32_t member) {
    int at = 0;
    while (node.members[at] != member) ++at;
    return at;
}

inline void add_to(std::int32_t* left, int last, std::int32_t change) {
    for (int j = 0; j < PLACES; ++j) left[j] += j <= last ? change : 0;
}

template <typename T>
inline void open_at(T* places, int at, T value) {
    std::memmove(places + at + 1, places + at, static_cast<std::size_t>(WIDTH - 1 - at) * sizeof(T));
    places[at] = value;
}

template <typename T>
inline void close_at(T* places, int at) {
    std::memmove(places + at, places + at + 1, static_cast<std::size_t>(WIDTH - 1 - at) * sizeof(T));
    places[WIDTH - 1] = 0;
}

#endif

inline Leaf& node_at(const Order& order, int level, std::int64_t node) {
    return level ? order.inner[node] : order.leaves[node];
}

inline int height(const Order& order) { return static_cast<int>(order.state[HEIGHT]); }

inline std::int32_t make(Order& order, int level) {
    std::int64_t* pool = order.state + (level ? INNER : LEAVES);
    std::int64_t node = pool[1] - 1;
    if (node >= 0)
        pool[1] = node_at(order, level, node).parent;
    else
        node = pool[0]++;
    if (level)
        order.inner[node] = Inner{};
    else
        order.leaves[node] = Leaf{};
    return static_cast<std::int32_t>(node);
}

// Copy members [from, size) of one node to the end of another of the same level.
void copy(Order& order, int level, std::int64_t source, int from, std::int64_t target) {
    Leaf &one = node_at(order, level, source), &other = node_at(order, level, target);
    for (int j = from; j < one.size; ++j, ++other.size) {
        const std::int32_t member = one.members[j];
        other.members[other.size] = member;
        other.keys[other.size] = one.keys[j];
        if (level) order.inner[target].left[other.size] = order.inner[source].left[j];
        if (level)
            node_at(order, level - 1, member).parent = static_cast<std::int32_t>(target);
        else
            order.home[member] = static_cast<std::int32_t>(target) + 1;
    }
}

// Move the members of a node from `cut` on to a new one behind it. The parent has room.
void split(Order& order, int level, std::int64_t node, int cut) {
    const std::int32_t right = make(order, level);
    Leaf &one = node_at(order, level, node), &other = node_at(order, level, right);
    std::int32_t slots = one.size - cut;
    copy(order, level, node, cut, right);
    for (int j = cut; j < WIDTH; ++j) one.keys[j] = 0.0;
    if (level) {
        std::int32_t* left = order.inner[node].left;
        slots = left[cut];
        for (int j = 0; j < WIDTH; ++j) left[j] = j < cut ? left[j] - slots : 0;
    }
    one.size = cut;
    other.parent = one.parent;
    Inner& parent = order.inner[one.parent];
    const int at = place_of(parent, static_cast<std::int32_t>(node)) + 1;
    open_at(parent.left, at, parent.left[at] + slots);
    open_at(parent.keys, at, other.keys[0]);
    open_at(parent.members, at, right);
    ++parent.size;
}

// Move all members of the node that stands at `at` + 1 below `parent` to the one before it.
void merge(Order& order, int level, Inner& parent, int at) {
    const std::int64_t node = parent.members[at], right = parent.members[at + 1];
    if (level) add_to(order.inner[node].left, node_at(order, level, node).size - 1, order.inner[right].left[0]);
    copy(order, level, right, 0, node);
    std::int64_t* pool = order.state + (level ? INNER : LEAVES);
    node_at(order, level, right).parent = static_cast<std::int32_t>(pool[1]);
    pool[1] = right + 1;
    close_at(parent.left, at + 1);
    close_at(parent.keys, at + 1);
    close_at(parent.members, at + 1);
    --parent.size;
}

// Merge the node that stands at `at` with its neighbours while they are small together, and below it where such
// neighbours meet thereby; whether it came to that.
bool mend(Order& order, int level, Inner& parent, int at) {
    const auto size = [&](int place) { return node_at(order, level, parent.members[place]).size; };
    const auto small = [&](int place) {  // together with the next one
        if (place < 0 || place + 1 >= parent.size) return false;
        if (level == 0) return parent.left[place] - parent.left[place + 2] < JOIN;
        return size(place) + size(place + 1) < JOIN;
    };
    for (bool merged = false;; merged = true) {
        if (small(at - 1))
            --at;
        else if (!small(at))
            return merged;
        Leaf& node = node_at(order, level, parent.members[at]);
        const int border = node.size;
        merge(order, level, parent, at);
        if (level) mend(order, level - 1, static_cast<Inner&>(node), border);
    }
}

void take_out(Order& order, std::int64_t slot) {
    const std::int32_t home = order.home[slot] - 1;
    if (home < 0) return;
    order.home[slot] = 0;
    Leaf& leaf = order.leaves[home];
    int at = place_of(leaf, static_cast<std::int32_t>(slot));
    close_at(leaf.keys, at);
    close_at(leaf.members, at);
    --leaf.size;
    --order.state[ENTRIES];
    std::int32_t below = home, above = leaf.parent;
    for (int level = 1; level <= height(order); ++level) {
        Inner& inner = order.inner[above];
        add_to(inner.left, place_of(inner, below), -1);
        below = above;
        above = inner.parent;
    }
    below = home;
    above = leaf.parent;
    for (int level = 0; level < height(order); ++level) {
        Inner& inner = order.inner[above];
        if (!mend(order, level, inner, place_of(inner, below))) return;
        below = above;
        above = inner.parent;
    }
}

// A new root, above the old one or above a first leaf.
void grow(Order& order) {
    const int level = height(order);
    const auto below = level ? static_cast<std::int32_t>(order.state[ROOT]) : make(order, 0);
    const std::int32_t root = make(order, 1);
    Inner& inner = order.inner[root];
    inner.keys[0] = INFINITE;
    inner.members[0] = below;
    inner.left[0] = static_cast<std::int32_t>(order.state[ENTRIES]);
    inner.size = 1;
    node_at(order, level, below).parent = root;
    order.state[ROOT] = root;
    ++order.state[HEIGHT];
}

void put_in(Order& order, std::int64_t slot, double key) {
    if (!height(order) || order.inner[order.state[ROOT]].size == WIDTH) grow(order);
    std::int64_t node = order.state[ROOT];
    for (int level = height(order) - 1; level >= 0; --level) {
        Inner& inner = order.inner[node];
        int at = not_below(inner.keys, key) - 1;
        const std::int32_t child = inner.members[at];
        if (RELIVE_UNLIKELY(node_at(order, level, child).size == WIDTH)) {
            // Full nodes are split on the way down, so that every parent has room.
            const bool appended = level == 0 && not_below(order.leaves[child].keys, key) == WIDTH;
            split(order, level, child, appended ? PACKED : WIDTH / 2);
            mend(order, level, inner, at + 1);
            mend(order, level, inner, at);
            at = not_below(inner.keys, key) - 1;
        }
        add_to(inner.left, at, 1);
        node = inner.members[at];
    }
    Leaf& leaf = order.leaves[node];
    const int at = not_below(leaf.keys, key);
    open_at(leaf.keys, at, key);
    open_at(leaf.members, at, static_cast<std::int32_t>(slot));
    ++leaf.size;
    order.home[slot] = static_cast<std::int32_t>(node) + 1;
    ++order.state[ENTRIES];
}

inline void fetch(const void* node, std::size_t size) {
    for (std::size_t offset = 0; offset < size; offset += 64)
        RELIVE_PREFETCH_WRITE(static_cast<const char*>(node) + offset);
}

// Fetch the nodes from which slots are taken.
inline void fetch_homes(const Order& order, const std::int64_t* slots, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
        if (order.home[slots[i]]) fetch(order.leaves + order.home[slots[i]] - 1, sizeof(Leaf));
    for (std::int64_t i = 0; i < n; ++i)
        if (order.home[slots[i]]) {
            const Inner& inner = order.inner[order.leaves[order.home[slots[i]] - 1].parent];
            RELIVE_PREFETCH_WRITE(inner.members);
            RELIVE_PREFETCH_WRITE(inner.left);
        }
}

// Fetch the nodes to which keys go.
inline void fetch_targets(const Order& order, const double* keys, std::int64_t n) {
    std::int64_t node[AHEAD];
    for (std::int64_t i = 0; i < n; ++i) node[i] = order.state[ROOT];
    for (int level = height(order); level > 0; --level)
        for (std::int64_t i = 0; i < n; ++i) {
            if (!(keys[i] > 0.0)) continue;
            const Inner& inner = order.inner[node[i]];
            node[i] = inner.members[not_below(inner.keys, keys[i]) - 1];
            fetch(&node_at(order, level - 1, node[i]), level > 1 ? sizeof(Inner) : sizeof(Leaf));
        }
}

void reorder(Order& order, const std::int64_t* removed, std::int64_t removed_count, const std::int64_t* added,
             const double* keys, std::int64_t added_count) {
    const auto take_out_all = [&](const std::int64_t* slots, std::int64_t n) {
        fetch_homes(order, slots, n);
        for (std::int64_t i = 0; i < n; ++i) take_out(order, slots[i]);
    };
    for (std::int64_t start = 0; start < removed_count; start += AHEAD)
        take_out_all(removed + start, removed_count - start < AHEAD ? removed_count - start : AHEAD);
    // A block at a time, so that no node is emptied only to be filled again.
    for (std::int64_t start = 0, end; start < added_count; start = end) {
        end = added_count - start < AHEAD ? added_count : start + AHEAD;
        take_out_all(added + start, end - start);
        fetch_targets(order, keys + start, end - start);
        for (std::int64_t i = start; i < end; ++i)
            if (keys[i] > 0.0) put_in(order, added[i], keys[i]);
    }
}

void ranked(const Order& order, const std::int64_t* ranks, std::int64_t n, std::int64_t* slots) {
    std::int64_t node[AHEAD];
    std::int32_t behind[AHEAD];  // slots from the wanted one on; in the end its place in its leaf
    for (std::int64_t start = 0, count; start < n; start += count) {
        count = n - start < AHEAD ? n - start : AHEAD;
        for (std::int64_t i = 0; i < count; ++i) {
            node[i] = order.state[ROOT];
            behind[i] = static_cast<std::int32_t>(order.state[ENTRIES] - ranks[start + i]);
        }
        for (int level = height(order); level > 0; --level)
            for (std::int64_t i = 0; i < count; ++i) {
                const Inner& inner = order.inner[node[i]];
                const int at = not_below(inner.left, behind[i]) - 1;
                node[i] = inner.members[at];
                if (level > 1) {
                    behind[i] -= inner.left[at + 1];
                    RELIVE_PREFETCH(order.inner[node[i]].left);
                    RELIVE_PREFETCH(order.inner[node[i]].members);
                } else {
                    behind[i] = inner.left[at] - behind[i];
                    RELIVE_PREFETCH(order.leaves[node[i]].members);
                }
            }
        for (std::int64_t i = 0; i < count; ++i) slots[start + i] = order.leaves[node[i]].members[behind[i]];
    }
}
