"""The 8-ary sum tree in torch ops: what `_ring/kernels_numpy/tree.py` does, with the same bits.

No op waits for the device, and no shape depends on values: what does not count is masked. Floats are added column by
column and never by `cumsum` or `sum`, whose order on a GPU is another one.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from .. import sum_tree
from .._base.frozen import Frozen
from ._power import power

FAN_OUT = 8
# Entries of the state of a tree.
TOTAL, SMALLEST, COUNT, LARGEST, ITEMS = range(sum_tree.STATE)


class Tree(Frozen):
    """A sum tree over tensors that the caller owns, as `relive.SumTree` has its arrays.

    A draw of a tree without a positive leaf (`state[COUNT]` is 0) gives slot 0.

    Args:
        leaves: How many leaves there are.
        nodes: float64 `[sum_tree.size(leaves)]`: the sums of every level, leaves first, then the minima of all levels
            but the leaves'. Zeros are an empty tree.
        state: float64 `[5]`: total, smallest positive leaf (inf if none), number of positive leaves, the largest raw
            priority ever set (0 if none), drawable items of the ring.
        offsets: int64 `[2, levels]`, on the same device: where in `nodes` the sums and the minima of each level begin,
            the leaves first, whose minima are they themselves. `of` makes it.
    """

    leaves: int
    nodes: Tensor
    state: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, leaves: int, nodes: Tensor, state: Tensor) -> Tree:
        """The tree over these tensors. Copies `offsets` to their device."""
        starts = torch.tensor(_starts(leaves), dtype=torch.int64)
        return cls(leaves, nodes, state, starts.to(nodes.device))

    @cached_property
    def sums(self) -> list[Tensor]:
        """The entries of every level, the leaves first."""
        return self._levels(0)

    @cached_property
    def mins(self) -> list[Tensor]:
        """The smallest positive leaf below each entry of every level, 0 where there is none; the leaves themselves."""
        return self._levels(1)

    def _levels(self, kind: int) -> list[Tensor]:
        starts, sizes = _starts(self.leaves)[kind], sum_tree.lengths(self.leaves)
        return [self.nodes[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _starts(leaves: int) -> tuple[list[int], list[int]]:
    """Where in `nodes` the sums and the minima of every level begin."""
    sizes = sum_tree.lengths(leaves)
    starts = list(accumulate([*sizes, *sizes[1:]], initial=0))[:-1]
    return starts[: len(sizes)], [0, *starts[len(sizes) :]]


def find(tree: Tree, target: Tensor) -> Tensor:
    """The leaf in whose half-open share of `[0, total)` each target lies, int64; one above gives the last positive."""
    node = torch.zeros_like(target, dtype=torch.int64)
    for level in reversed(tree.sums):
        child, target = _search(level.view(-1, FAN_OUT)[node], target)
        node = node * FAN_OUT + child
    return node


def draw(tree: Tree, u: Tensor, stratified: bool) -> tuple[Tensor, Tensor]:
    """Leaves in proportion to their values, int64, and the values, float64, from uniforms in [0, 1).

    Stratified: the i-th uniform is a point inside the i-th of `len(u)` equal slices of the total.
    """
    total, n = tree.state[TOTAL], len(u)
    if stratified:
        u = torch.arange(n, device=u.device) + u
        total = total / torch.full_like(total, n)  # a tensor as divisor: see _power.py
    slots = find(tree, u * total)
    return slots, tree.nodes[slots]


def put_distinct(tree: Tree, slots: Tensor, values: Tensor, mask: Tensor) -> None:
    """Write leaves at distinct `slots` where `mask` says so. What is above them has to be rebuilt.

    The other slots may be any: their leaves are written as they are.
    """
    leaves = tree.sums[0]
    old = leaves[slots]
    new = torch.where(mask, values, old)
    tree.state[COUNT].add_(((new > 0.0).to(torch.int64) - (old > 0.0).to(torch.int64)).sum())
    leaves.index_put_((slots,), new)


def put_last(tree: Tree, slots: Tensor, values: Tensor, mask: Tensor) -> None:
    """Write leaves where `mask` says so, the last of several for one slot. What is above them has to be rebuilt.

    Without scratch and without sorting: leaves are not negative, so the bits of a negative integer can stand in one for
    a moment. The smallest of `-1 - place` wins, in whatever order they arrive; the winners then put their values.
    """
    leaves = tree.sums[0]
    bits, old = leaves.view(torch.int64), leaves[slots]
    tags = -1 - torch.arange(len(slots), device=slots.device)
    limits = torch.iinfo(torch.int64)
    bits.scatter_reduce_(0, slots, torch.where(mask, tags, limits.max), "amin")
    won = mask & (bits[slots] == tags)
    bits.scatter_reduce_(0, slots, torch.where(won, values.view(torch.int64), limits.min), "amax")
    change = (values > 0.0).to(torch.int64) - (old > 0.0).to(torch.int64)
    tree.state[COUNT].add_(torch.where(won, change, 0).sum())


def rebuild(tree: Tree, slots: Tensor) -> None:
    """Recompute every sum and minimum above `slots` from its children.

    Equal groups write equal bits, so repeated slots need no care, and slots whose leaves are as they were do no harm.
    """
    if not len(slots):
        return
    group, top = slots, len(tree.sums) - 1
    for level, (sums, mins) in enumerate(zip(tree.sums, tree.mins, strict=True)):
        group = group >> 3
        total, least = _sum8(sums.view(-1, FAN_OUT)[group]), _min8(mins.view(-1, FAN_OUT)[group])
        if level < top:
            tree.sums[level + 1].index_put_((group,), total)
            tree.mins[level + 1].index_put_((group,), least)
        else:
            tree.state[TOTAL].copy_(total[0])
            tree.state[SMALLEST].copy_(torch.where(least[0] > 0.0, least[0], torch.inf))


def set_priorities(tree: Tree, slots: Tensor, raw: Tensor, mask: Tensor, alpha: float) -> None:
    """Set leaves to `raw ** alpha` where `mask` says so, the last of several for one slot, and rebuild what is above.

    The largest raw priority becomes that of those that won, as far as their leaves tell.
    """
    if not len(slots):
        return
    values = power(raw, alpha)
    put_last(tree, slots, values, mask)
    won = mask & (tree.nodes[slots] == values)
    largest = torch.where(won, raw, 0.0).amax()
    tree.state[LARGEST].copy_(torch.maximum(tree.state[LARGEST], largest))
    rebuild(tree, slots)


def _sum8(groups: Tensor) -> Tensor:
    pairs = groups[:, 0::2] + groups[:, 1::2]
    fours = pairs[:, 0::2] + pairs[:, 1::2]
    return fours[:, 0] + fours[:, 1]


def _min8(groups: Tensor) -> Tensor:
    least = torch.where(groups > 0.0, groups, torch.inf).amin(1)
    return torch.where(least < torch.inf, least, 0.0)


def _search(groups: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The child of each group in which its target lies, and the target relative to that child."""
    scan = groups
    for step in (1, 2, 4):
        scan = torch.cat((scan[:, :step], scan[:, step:] + scan[:, :-step]), 1)
    child = (scan <= target[:, None]).sum(1)
    inside = child.clamp(max=FAN_OUT - 1)
    before = torch.where(child > 0, _pick(scan, (inside - 1).clamp(min=0)), 0.0)
    # Rounding can lead past the group's end or on to a zero. Both searches are made: shapes depend on no value.
    doubtful = (child == FAN_OUT) | (_pick(groups, inside) <= 0.0)
    exact, rest = _search_exactly(groups, target)
    return torch.where(doubtful, exact, child), torch.where(doubtful, rest, target - before)


def _search_exactly(groups: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The same by adding up in sequence: never a zero, and the last positive child where the target is too large."""
    added = [groups[:, 0]]
    for j in range(1, FAN_OUT):
        added.append(added[-1] + groups[:, j])
    after = torch.stack(added, 1)
    positive, children = groups > 0.0, torch.arange(FAN_OUT, device=groups.device)
    hit = positive & (after > target[:, None])
    first = torch.where(hit, children, FAN_OUT).amin(1)
    found = first < FAN_OUT
    child = torch.where(found, first, torch.where(positive, children, 0).amax(1))
    before = torch.where(child > 0, _pick(after, (child - 1).clamp(min=0)), 0.0)
    return child, torch.where(found, target - before, _pick(groups, child))


def _pick(rows: Tensor, at: Tensor) -> Tensor:
    """One entry of each row."""
    return rows.gather(1, at[:, None])[:, 0]
