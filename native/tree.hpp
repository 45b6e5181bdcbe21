// The sum tree's algorithms. Included by kernels.cpp inside the namespace of one instruction set.

constexpr std::int64_t BLOCK = 256;  // draws that go down the tree together, so that their cache misses overlap
constexpr std::int64_t GUESSED = 8;  // draws without replacement whose groups are guessed together
constexpr std::int64_t FEW = 3;      // up to here groups of leaves go up the tree one by one

// Take up to BLOCK targets from the root to groups of leaves, whose lines come together.
inline void approach(const Tree& tree, double* target, std::int64_t n, std::int64_t* group, Scan& scan) {
    for (std::int64_t i = 0; i < n; ++i) group[i] = 0;
    for (int level = tree.levels - 1; level > 0; --level) {
        const double* sums = tree.sums[level];
        const double* next = tree.sums[level - 1];
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t node = group[i] * FAN_OUT;
            group[i] = node + search(sums + node, target[i], scan);
            RELIVE_PREFETCH(next + group[i] * FAN_OUT);
        }
    }
}

// Take up to BLOCK targets from the root to the leaves.
inline void descend(const Tree& tree, double* target, std::int64_t n, std::int64_t* index, double* value) {
    Scan scan;
    approach(tree, target, n, index, scan);
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

// One level and where its groups' sums and minima go: recompute one group.
struct Level {
    const double* sums;
    const double* mins;  // what `sums` holds has its minima here: at the bottom they are the leaves themselves
    double* sums_above;
    double* mins_above;

    Level(Tree& tree, int level)
        : sums(tree.sums[level]),
          mins(level == 0 ? tree.sums[0] : tree.mins[level - 1]),
          sums_above(level + 1 < tree.levels ? tree.sums[level + 1] : tree.state),
          mins_above(level + 1 < tree.levels ? tree.mins[level] : tree.state + 1) {}

    void redo(std::int64_t group) const {
        const double smallest = min8(mins + group * FAN_OUT, NONE);
        sums_above[group] = sum8(sums + group * FAN_OUT);
        mins_above[group] = smallest < INFINITE ? smallest : 0.0;
    }
};

// Recompute everything above the groups of leaves in `groups`, which is overwritten. Repeats among the last two are
// dropped (draws come back ascending, a removed and an added run side by side); where the list is still as long as a
// level has groups, all of them are recomputed, which bounds what other repeats cost.
void rebuild(Tree& tree, std::int64_t* groups, std::int64_t count) {
    for (int l = 0; l < tree.levels; ++l) {
        const Level level(tree, l);
        if (count >= tree.groups[l]) {
            for (std::int64_t g = 0; g < tree.groups[l]; ++g) level.redo(g);
            continue;  // with the same count: the levels above have fewer groups and are recomputed whole too
        }
        std::int64_t kept = 0, last = -1, before = -1;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t group = groups[i], parent = group / FAN_OUT;
            level.redo(group);
            groups[kept] = parent;  // overwritten by the next one if it is a repeat
            const bool fresh = parent != last && parent != before;
            kept += fresh;
            before = fresh ? last : before;
            last = fresh ? parent : last;
        }
        count = kept;
    }
    if (!(tree.state[1] > 0.0)) tree.state[1] = INFINITE;
}

// Recompute everything above one group of leaves. Each new entry is combined with its siblings in registers: reading
// back the line it was just written to would wait for the store at every level.
inline void climb(Tree& tree, std::int64_t group) {
    const double* leaves = tree.sums[0] + group * FAN_OUT;
    double sum = sum8_with(leaves, 0, leaves[0]);
    double smallest = min8(leaves, NONE);
    for (int level = 1; level < tree.levels; ++level) {
        const int j = static_cast<int>(group % FAN_OUT);
        double* s = tree.sums[level] + (group - j);
        double* m = tree.mins[level - 1] + (group - j);
        const double others = min8(m, j);
        const double above = sum8_with(s, j, sum);
        s[j] = sum;
        m[j] = smallest < INFINITE ? smallest : 0.0;
        sum = above;
        smallest = others < smallest ? others : smallest;
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
    // Both lists side by side: an added leaf often shares its group with the one removed for it.
    std::int64_t count = 0, last = -1, before = -1;
    const auto touch = [&](std::int64_t index) {
        const std::int64_t group = index / FAN_OUT;
        if (group == last || group == before) return;
        before = last;
        last = group;
        groups[count++] = group;
        RELIVE_PREFETCH_WRITE(leaves + group * FAN_OUT);
    };
    const std::int64_t longer = w.removed_count > w.added_count ? w.removed_count : w.added_count;
    for (std::int64_t i = 0; i < longer; ++i) {
        if (i < w.removed_count) touch(w.removed[i]);
        if (i < w.added_count) touch(w.added[i]);
    }
    std::int64_t positive = 0;
    for (std::int64_t i = 0; i < w.removed_count; ++i) positive += put(leaves + w.removed[i], 0.0);
    for (std::int64_t i = 0; i < w.added_count; ++i) positive += put(leaves + w.added[i], w.values[i * w.stride]);
    tree.state[2] += static_cast<double>(positive);
    if (count <= FEW)
        for (std::int64_t i = 0; i < count; ++i) climb(tree, groups[i]);
    else
        rebuild(tree, groups, count);
}

// Give hidden leaves, which are negative, their values again; returns how many are positive.
inline std::int64_t show(Tree& tree) {
    double* leaves = tree.sums[0];
    std::int64_t positive = 0;
    for (std::int64_t i = 0; i < tree.groups[0] * FAN_OUT; ++i) {
        leaves[i] = leaves[i] > 0.0 ? leaves[i] : 0.0 - leaves[i];
        positive += leaves[i] > 0.0;
    }
    return positive;
}

// Build all sums again from the leaves, of which a kill in mid-draw may have left some hidden.
void restore(Tree& tree) {
    const std::int64_t positive = show(tree);
    tree.state[2] = static_cast<double>(positive);
    rebuild(tree, nullptr, tree.groups[0]);
}

// Draw one leaf and hide it from the next draws; returns the total that is left. `index` holds a guess of its group,
// which says where most steps down will lead: the processor takes them without waiting for the ones above. The step to
// the group itself is too often another one. `before` notes what is hidden at the levels below `noted`. A hidden leaf
// is negative, so that its value lasts if the process is killed here.
inline double draw_and_hide(Tree& tree, double target, std::int64_t& index, double& value, double* before, int noted,
                            Scan& scan) {
    std::int64_t node = 0;
    for (int level = tree.levels - 1; level > 0; --level) {
        const double* sums = tree.sums[level] + node * FAN_OUT;
        const std::int64_t next = index >> 3 * (level - 1);
        if (level > 1 && next >> 3 == node && leads_to(static_cast<int>(next & 7), sums, target, scan))
            node = next;
        else
            node = node * FAN_OUT + search(sums, target, scan);
    }
    alignas(64) double leaves[FAN_OUT];
    double* all = tree.sums[0] + node * FAN_OUT;
    copy_shown(all, leaves);
    int j = search(leaves, target, scan);
    index = node * FAN_OUT + j;
    value = leaves[j];
    double sum = sum8_with(leaves, j, 0.0);
    replace(all, j, -value);
    for (int level = 1; level < tree.levels; ++level) {
        j = static_cast<int>(node & 7);
        node >>= 3;
        double* sums = tree.sums[level] + node * FAN_OUT;
        if (level < noted) before[level - 1] = sums[j];
        const double above = sum8_with(sums, j, sum);
        replace(sums, j, sum);
        sum = above;
    }
    return sum;
}

// Calls `run(sums, kept, bytes)` for the levels from `first` on, with the place in `kept` where a copy of each goes.
template <typename Run>
inline void each_kept(const Tree& tree, int first, double* kept, const Run& run) {
    for (int level = first; level < tree.levels; ++level) {
        const std::int64_t entries = tree.groups[level] * FAN_OUT;
        run(tree.sums[level], kept, static_cast<std::size_t>(entries) * sizeof(double));
        kept += entries;
    }
}

void draw_distinct(Tree& tree, const double* u, std::int64_t n, std::int64_t* index, double* value, double* before) {
    Scan scan;
    double target[GUESSED];
    double total = tree.state[0];
    // Levels with fewer entries than there are draws are copied as a whole; for others, each change is noted.
    int noted = 1;
    while (noted < tree.levels && tree.groups[noted] * FAN_OUT > n) ++noted;
    double* kept = before + n * (noted - 1);
    each_kept(tree, noted, kept, [](double* sums, double* to, std::size_t bytes) { std::memcpy(to, sums, bytes); });
    for (std::int64_t start = 0, end; start < n; start = end) {
        end = n - start < GUESSED ? n : start + GUESSED;
        // Where these draws would lead if they hid nothing from each other.
        for (std::int64_t i = start; i < end; ++i) target[i - start] = u[i] * total;
        approach(tree, target, end - start, index + start, scan);
        for (std::int64_t i = start; i < end; ++i) {  // or to a group beside
            RELIVE_PREFETCH(tree.sums[0] + (index[i] - (index[i] > 0)) * FAN_OUT);
            RELIVE_PREFETCH(tree.sums[0] + (index[i] + (index[i] + 1 < tree.groups[0])) * FAN_OUT);
        }
        for (std::int64_t i = start; i < end; ++i)
            total = draw_and_hide(tree, u[i] * total, index[i], value[i], before + i * (noted - 1), noted, scan);
    }
    each_kept(tree, noted, kept, [](double* sums, double* from, std::size_t bytes) { std::memcpy(sums, from, bytes); });
    if (noted == 1) {  // about as many as there are groups of leaves
        show(tree);
        return;
    }
    for (std::int64_t i = n - 1; i >= 0; --i) {
        tree.sums[0][index[i]] = value[i];
        for (int level = 1; level < noted; ++level)
            tree.sums[level][index[i] >> 3 * level] = before[i * (noted - 1) + level - 1];
    }
}
