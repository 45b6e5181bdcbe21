"""Copying rows of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..._base.types import Array, Float32, Float64, Int64
from ..lanes import END, GONE, HEAD, HELD, LOST
from ..plans import Expanded, Kept, Part, Relabelled, Sequenced, Stacked
from .rows import RingRows


class Gather:
    """Copies rows of many columns into output arrays; `picks[i]` names the list of rows that column `i` takes.

    `mapped`: they may be in a file that does not fit into memory. The native kernel then asks for rows that are not
    there all at once.
    """

    def __init__(self, columns: Sequence[Array], picks: Sequence[int], mapped: bool) -> None:
        self._columns = list(columns)
        self._picks = list(picks)

    def take(self, rows: Sequence[Int64], outs: Sequence[Array]) -> None:
        """Fill `outs[i]` with the storage rows `rows[picks[i]]` of column `i`."""
        for column, pick, out in zip(self._columns, self._picks, outs, strict=True):
            out[...] = column[rows[pick]]

    def expand(
        self, ring: RingRows, slots: Int64, discounts: Float32, last: bool, outs: list[Array] | None
    ) -> Expanded:
        """Return the windows at `slots`, with the rows of anchors and successors in `outs` or in new arrays.

        `last`: the call reads nothing of these rows afterwards. The native kernel then copies large batches outside of
        the buffer's lock, and writes wait before they would overwrite such rows.
        """
        windows = ring.windows(slots, discounts)
        rows = [windows.at, windows.after]
        if outs is None:
            outs = self.taken(rows)
        else:
            self.take(rows, outs)
        return Expanded(windows, outs)

    def transitions(
        self,
        ring: RingRows,
        discounts: Float32,
        keys: Sequence[tuple[str, ...]],
        stacks: Sequence[Stacked],
        reward: Array | None,
        gammas: Float64,
        chunks: Sequence[tuple[tuple[str, ...], Array]] | None,
    ) -> None:
        """Do nothing: only the native kernel has a fast path that expands transitions inside `sample`.

        Args:
            ring: The ring.
            discounts: As in `Ring.windows`.
            keys: Of every column, in the batch.
            stacks: Columns beside these, whose frames are stacked; their fields are behind the others.
            reward: The column of rewards that are summed over steps; None: they are among the columns.
            gammas: As in `Ring.fold`.
            chunks: Columns beside these that are shown at every step of a window, and their keys; None: without a mask.
        """

    def around(
        self,
        ring: RingRows,
        keys: Sequence[tuple[str, ...]],
        offsets: Sequence[Int64],
        masks: Sequence[tuple[str, ...] | None],
        repeat: bool,
        targets: object,
    ) -> None:
        """Do nothing: only the native kernel has a fast path that expands windows inside `sample`.

        Args:
            ring: The ring.
            keys: Of every column, in the batch.
            offsets: Lists of offsets from the anchor; `picks` names that of each column.
            masks: The keys of the mask of each list; None: it has one offset, without an axis.
            repeat: As in `Ring.around`.
            targets: What expands the transitions whose fields items have besides; None: they have none.
        """

    def sequences(
        self,
        ring: RingRows,
        length: int,
        discounts: Float32,
        time_major: bool,
        shown: Sequence[Sequence[Part]],
        summed: int,
        gammas: Float64,
        states: Sequence[Kept],
        step_ids: bool,
        burn_in: int,
        first: bool,
    ) -> None:
        """Do nothing: only the native kernel has a fast path that expands sequences inside `sample`.

        Columns of pick 0 are read at the observations, those of pick 1 at the steps before them.

        Args:
            ring: The ring.
            length: T.
            discounts: As in `Ring.windows`.
            time_major: Whether time is the first axis.
            shown: What is shown of every column.
            summed: The column of rewards, of which the first part has sums over steps, in memory of its own; -1: none.
            gammas: As in `Ring.fold`.
            states: Columns that are kept at every so many steps.
            step_ids: Whether the ids of all steps are shown.
            burn_in: How many of the T steps are in front of an anchor.
            first: Whether the field `first` is shown.
        """

    def relabelled(
        self, ring: RingRows, slots: Int64, numbers: Float64, ratio: float, n_step: int, strategy: int
    ) -> Relabelled:
        """Choose new goals for some of the items at `slots`, and copy what their rewards need.

        Columns of pick 0 are read at what was achieved then, those of pick 1 after each step, those of pick 2 at it.

        Args:
            ring: The ring.
            slots: Of drawable items `[N]`.
            numbers: Two numbers in [0, 1) for each, `[2, N]`: items whose first one is below `ratio` get a goal; the
                second one chooses the step whose achievement it is.
            ratio: The share of items with a new goal.
            n_step: Steps of the items' windows.
            strategy: 0: a step drawn from the anchor on; 1: the last one; 2: a step drawn from the whole stream.
        """
        some = np.flatnonzero(numbers[0] < ratio)
        # Before the walk: another process may add steps meanwhile, and what those achieved is left out then.
        held, head = ring.counters[:, HELD].copy(), ring.counters[:, HEAD].copy()
        windows, one = ring.windows(slots[some], np.ones(n_step + 1, np.float32)), np.ones(2, np.float32)
        ids, (rows, lanes) = windows.ids, np.divmod(windows.ids, ring.num_lanes)
        ahead = ring.follow(ids, np.full(len(ids), ring.rows)).steps
        marks = ring.marks[ring.at(rows + ahead, lanes)]
        newest = (rows + ahead + 1 == head[lanes]) & (held[lanes] == head[lanes])
        ahead -= ((marks & LOST) > 0) | ~(((marks & END) > 0) | newest)
        which = np.flatnonzero(ahead >= windows.steps - 1)  # it is known what every step of the window achieved
        ids, rows, lanes, ahead = (each[which] for each in (ids, rows, lanes, ahead))
        if strategy != 1:
            first = np.zeros_like(ahead)
            if strategy == 2:
                first = ring.follow(ids, np.full(len(ids), -ring.rows)).steps
                first = np.maximum(first, np.minimum(ring.counters[lanes, GONE] - rows, 0))
            # The product may be rounded up to the number of steps.
            ahead = np.minimum(first + (numbers[1, some[which]] * (ahead - first + 1)).astype(np.int64), ahead)
        item, ages = np.nonzero(np.arange(n_step) < windows.steps[which, None])
        goals, steps = (
            ring.windows(each % (ring.rows * ring.num_lanes), one)
            for each in ((ids + ahead * ring.num_lanes)[item], ids[item] + ages * ring.num_lanes)
        )
        copies = self.taken([goals.after, steps.after, steps.at])
        return Relabelled(some[which], ids, ahead, item, ages, steps.after, copies)

    def goals(
        self,
        ring: RingRows,
        item: object,
        keys: Sequence[tuple[str, ...]],
        ratio: float,
        n_step: int,
        strategy: int,
        outcomes: Callable[[Relabelled], tuple[Array, ...]],
        reward: Callable[..., object] | None,
    ) -> None:
        """Do nothing: only the native kernel has a fast path that relabels inside `sample`.

        Args:
            ring: The ring.
            item: The fast path that expands the items.
            keys: Of the three fields that relabelled items get anew.
            ratio: As in `relabelled`, as are `n_step` and `strategy`.
            n_step: Steps of the items' windows.
            strategy: Where goals come from.
            outcomes: Returns the values of these fields. Without a plan its `extras` makes the function's last argument
                of copies, and its `rewards` checks what the function gave.
            reward: Of items of one step, the function to call without a plan, with what was achieved and the goals,
                which are the first two columns, and the extras, the other ones; None: `outcomes` is called.
        """

    def unroll(
        self,
        ring: RingRows,
        slots: Int64,
        length: int,
        discounts: Float32,
        time_major: bool,
        listed: bool,
        outs: list[Array] | None,
        burn_in: int,
    ) -> Sequenced:
        """Return the sequences at `slots`, with the rows at their positions in `outs` or in new arrays.

        Columns of pick 0 are read at the observations, those of pick 1 at the steps before them.
        """
        plan = ring.sequences(slots, length, discounts, burn_in)
        lists = np.asarray(plan.observed), np.asarray(plan.before)
        rows = [each.T.reshape(-1) if time_major else each.reshape(-1) for each in lists]
        if outs is None:
            outs = self.taken(rows)
        else:
            self.take(rows, outs)
        return Sequenced(plan if listed else plan._replace(observed=None, before=None), outs)

    def taken(self, rows: Sequence[Int64]) -> list[Array]:
        """Copy rows as `take` does, into new arrays."""
        return [column[rows[pick]] for column, pick in zip(self._columns, self._picks, strict=True)]
