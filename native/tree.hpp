// The sum tree's algorithms. Included by kernels.cpp inside the namespace of one instruction set.

constexpr std::int64_t BLOCK = 64;  // draws that go down the tree together, so that their cache misses overlap
constexpr std::int64_t FEW = 8;     // up to here writes go up the tree one by one

// Take up to BLOCK targets from the root to the leaves.
inline void descend(const Tree& tree, double* target, std::int64_t n, std::int64_t* index, double* value) {
    Scan scan;
    for (std::int64_t i = 0; i < n; ++i) index[i] = 0;
    for (int level = tree.levels - 1; level > 0; --level) {
        const double* sums = tree.sums[level];
        const double* next = tree.sums[level - 1];
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t node = index[i] * FAN_OUT;
            index[i] = node + search(sums + node, target[i], scan);
            RELIVE_PREFETCH(next + index[i] * FAN_OUT);
        }
    }
    const double* leaves = tree.sums[0];
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t node = index[i] * FAN_OUT;
        index[i] = node + search(leaves + node, target[i], scan);
        value[i] = leaves[index[i]];
    }
}

void find(const Tree& tree, const double* target, std::int64_t n, std::int64_t* index, double* value) {
    double rest[BLOCK];
    for (std::int64_t start = 0; start < n; start += BLOCK) {
        const std::int64_t count = n - start < BLOCK ? n - start : BLOCK;
        for (std::int64_t i = 0; i < count; ++i) rest[i] = target[start + i];
        descend(tree, rest, count, index + start, value + start);
    }
}

void draw(const Tree& tree, const double* u, std::int64_t n, bool stratified, std::int64_t* index, double* value) {
    double rest[BLOCK];
    const double total = tree.state[0];
    const double slice = total / static_cast<double>(n);
    for (std::int64_t start = 0; start < n; start += BLOCK) {
        const std::int64_t count = n - start < BLOCK ? n - start : BLOCK;
        if (stratified)
            for (std::int64_t i = 0; i < count; ++i) rest[i] = (static_cast<double>(start + i) + u[start + i]) * slice;
        else
            for (std::int64_t i = 0; i < count; ++i) rest[i] = u[start + i] * total;
        descend(tree, rest, count, index + start, value + start);
    }
}

// Recompute the groups from `first` on of one level.
inline void redo_group(Tree& tree, int level, std::int64_t group) {
    const double sum = sum8(tree.sums[level] + group * FAN_OUT);
    const double smallest = min8((level == 0 ? tree.sums[0] : tree.mins[level - 1]) + group * FAN_OUT);
    if (level + 1 < tree.levels) {
        tree.sums[level + 1][group] = sum;
        tree.mins[level][group] = smallest;
    } else {
        tree.state[0] = sum;
        tree.state[1] = smallest > 0.0 ? smallest : INFINITE;
    }
}

// Recompute everything above the groups of leaves in `groups`, which is overwritten. Repeats among the last two are
// dropped (draws come back ascending, a removed and an added run side by side); where the list is still as long as a
// level has groups, all of them are recomputed, which bounds what other repeats cost.
void rebuild(Tree& tree, std::int64_t* groups, std::int64_t count) {
    for (int level = 0; level < tree.levels; ++level) {
        if (count >= tree.groups[level]) {
            for (; level < tree.levels; ++level)
                for (std::int64_t g = 0; g < tree.groups[level]; ++g) redo_group(tree, level, g);
            return;
        }
        std::int64_t kept = 0, last = -1, before = -1;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t group = groups[i];
            redo_group(tree, level, group);
            const std::int64_t parent = group / FAN_OUT;
            if (parent == last || parent == before) continue;
            before = last;
            last = parent;
            groups[kept++] = parent;
        }
        count = kept;
    }
}

// Recompute everything above one group of leaves. Each new entry is combined with its siblings in registers: reading
// back the line it was just written to would wait for the store at every level.
inline void climb(Tree& tree, std::int64_t group) {
    const double* x = tree.sums[0] + group * FAN_OUT;
    double sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    double smallest = INFINITE;
    for (int j = 0; j < FAN_OUT; ++j) {
        const double value = x[j] > 0.0 ? x[j] : INFINITE;
        smallest = value < smallest ? value : smallest;
    }
    for (int level = 1; level < tree.levels; ++level) {
        const std::int64_t node = group & ~std::int64_t{7};
        const int j = static_cast<int>(group & 7);
        double* s = tree.sums[level] + node;
        double* m = tree.mins[level - 1] + node;
        s[j] = sum;
        m[j] = smallest < INFINITE ? smallest : 0.0;
        // The same pairs as in sum8, whose two sides may be swapped.
        const int pair = (j ^ 2) & 6, four = (j ^ 4) & 4;
        const double others = (s[four] + s[four + 1]) + (s[four + 2] + s[four + 3]);
        sum = ((sum + s[j ^ 1]) + (s[pair] + s[pair + 1])) + others;
        for (int k = 1; k < FAN_OUT; ++k) {
            const double value = m[j ^ k] > 0.0 ? m[j ^ k] : INFINITE;
            smallest = value < smallest ? value : smallest;
        }
        group /= FAN_OUT;
    }
    tree.state[0] = sum;
    tree.state[1] = smallest;
}

inline std::int64_t put(double* leaf, double value) {
    const std::int64_t change = (value > 0.0) - (*leaf > 0.0);
    *leaf = value;
    return change;
}

void write(Tree& tree, const Writes& w, std::int64_t* groups) {
    double* leaves = tree.sums[0];
    const bool few = w.removed_count + w.added_count <= FEW;
    if (!few) {
        for (std::int64_t i = 0; i < w.removed_count; ++i) RELIVE_PREFETCH_WRITE(leaves + w.removed[i]);
        for (std::int64_t i = 0; i < w.added_count; ++i) RELIVE_PREFETCH_WRITE(leaves + w.added[i]);
    }
    std::int64_t positive = 0;
    for (std::int64_t i = 0; i < w.removed_count; ++i) positive += put(leaves + w.removed[i], 0.0);
    for (std::int64_t i = 0; i < w.added_count; ++i) positive += put(leaves + w.added[i], w.values[i * w.stride]);
    tree.state[2] += static_cast<double>(positive);

    // Both lists side by side: an added leaf often shares its group with the one removed for it.
    std::int64_t count = 0, last = -1, before = -1;
    const auto touch = [&](std::int64_t index) {
        const std::int64_t group = index / FAN_OUT;
        if (group == last || group == before) return;
        before = last;
        last = group;
        groups[count++] = group;
    };
    const std::int64_t longer = w.removed_count > w.added_count ? w.removed_count : w.added_count;
    for (std::int64_t i = 0; i < longer; ++i) {
        if (i < w.removed_count) touch(w.removed[i]);
        if (i < w.added_count) touch(w.added[i]);
    }
    if (few)
        for (std::int64_t i = 0; i < count; ++i) climb(tree, groups[i]);
    else
        rebuild(tree, groups, count);
}

void draw_distinct(Tree& tree, const double* u, std::int64_t n, std::int64_t* index, double* value,
                   std::int64_t* groups) {
    double total = tree.state[0];
    for (std::int64_t i = 0; i < n; ++i) {
        double target = u[i] * total;
        descend(tree, &target, 1, index + i, value + i);
        // Hide the leaf from the next draws, in the sums alone.
        std::int64_t at = index[i];
        total = 0.0;
        for (int level = 0; level < tree.levels; ++level, at /= FAN_OUT) {
            tree.sums[level][at] = total;
            total = sum8(tree.sums[level] + at / FAN_OUT * FAN_OUT);
        }
    }
    for (std::int64_t i = 0; i < n; ++i) {
        tree.sums[0][index[i]] = value[i];
        groups[i] = index[i] / FAN_OUT;
    }
    rebuild(tree, groups, n);
}
