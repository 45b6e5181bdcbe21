"""Named types that layers and kernels exchange: layouts, plans of rows, changes, states of ids.

The kernels in C++ return the same classes. A plan is immutable and holds integers, flags and masks, never data.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from .._base.frozen import Frozen
from .._base.types import Array, Bool, Bytes, Float32, Float64, Int32, Int64

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from .._base.frozen import Record


class Window(Frozen, kw_only=True):
    """The steps at which an item can start, and the rows around such an anchor that it needs.

    Attributes:
        span: Steps, counted from the anchor, that must be stored with the observation after them; an end or a cut
            among them is enough, too. 0, of items that are read and never drawn: not even what follows the anchor.
        lookback: Older rows of the anchor's stream that are read, too, where the stream has them.
        starts: Anchors are the steps whose number in their lane is a multiple of this; 0: the first one of each stream.
        across: Whether items continue past an episode's end, so that only a cut ends them.
        actions: Whether the actions of several of these steps are read together: they then lie in arrays of their own.
    """

    span: int
    lookback: int = 0
    starts: int = 1
    across: bool = False
    actions: bool = False

    def __repr__(self) -> str:
        facts = self.facts  # in the order of `vars`, which is another one
        return f"Window({', '.join(f'{name}={facts[name]!r}' for name in self._kinds if name in facts)})"

    @property
    def facts(self) -> dict[str, int]:
        """The entries of saves and mapped files, without an `actions` of False, which earlier versions do not know."""
        return {name: value for name, value in vars(self).items() if value or name != "actions"}


class ColumnLayout(Frozen):
    """A column, as kernels see it.

    Attributes:
        array: All of its rows, `[rows, ...]`.
        keys: The keys that lead to its value in a step's nested mapping.
        shape: The shape of a value in a call of `add`, all frames of a stack included.
        frames: Frames of such a value; the newest is stored.
        repeat: Whether a stream's first frame is its own padding; else zeros are.
        every: The field is kept at every so many steps, in rows of its own; 0: in every row of the lane.
        whole: Whether a value's axes need no reordering; False where the frames of a stack are its last axis.
    """

    array: Array
    keys: tuple[str, ...]
    shape: tuple[int, ...]
    frames: int
    repeat: bool
    every: int
    whole: bool


class Stacked(Record):
    """A column of which observations show several rows.

    Attributes:
        gather: What the back end made to copy its rows, at the anchors (pick 0) and at the successors (pick 1).
        obs: The keys that lead to the observation in a batch.
        next_obs: Those that lead to its successor.
        frames: Rows that an observation shows.
        repeat: Whether a stream's first frame is its own padding; else zeros are.
        behind: Whether the frames are an observation's last axis.
    """

    gather: object
    obs: tuple[str, ...]
    next_obs: tuple[str, ...]
    frames: int
    repeat: bool
    behind: bool


class Kept(Record):
    """A column that is kept at every so many steps.

    Attributes:
        keys: The keys that lead to it in a batch.
        array: Its rows.
        every: At every so many steps.
    """

    keys: tuple[str, ...]
    array: Array
    every: int


class State(IntEnum):
    """The state of an id: drawable, or the reason why not."""

    DRAWABLE = 0
    OVERWRITTEN = 1
    INCOMPLETE = 2
    NEVER_ISSUED = 3
    NO_START = 4
    DROPPED = 5

    @property
    def words(self) -> str:
        """The state as an error says it behind an id."""
        return _WORDS[self]


_WORDS = {
    State.DRAWABLE: ", drawable",
    State.OVERWRITTEN: ", overwritten",
    State.INCOMPLETE: ": its window is not complete yet",
    State.NEVER_ISSUED: ", never issued",
    State.NO_START: ", not a step at which items start",
    State.DROPPED: ", dropped by a cut before its successor was known",
}


class Located(Record):
    """The slots of ids, valid where an id is drawable, and their `State`s; None where all are drawable."""

    slots: Int64
    states: Bytes | None


class Followed(Record):
    """The steps that `ReplayBuffer.follow` reached; unpacks as a pair.

    Attributes:
        ids: The ids of the steps reached, int64 `[B]`.
        steps: How many steps were made, int64 `[B]`: as many as were asked for, or fewer; negative ones go back.

    >>> import numpy as np
    >>> ids, steps = Followed(np.array([7, 9]), np.array([2, -1]))
    >>> ids.tolist(), steps.tolist()
    ([7, 9], [2, -1])
    """

    ids: Int64
    steps: Int64


class Relabelled(Record):
    """The items that get another goal, and the steps whose rewards they need; C items, M steps of their windows.

    Attributes:
        which: The items, as positions among the given ones, `[C]`.
        ids: The ids of their anchors.
        ahead: How many steps later the goal was achieved; earlier, where negative.
        item: The item, of the C, to which a step belongs, `[M]`.
        ages: How many steps of its window come before it.
        after: The storage rows of what the steps achieved.
        copies: Copies of columns' rows: the new goal of each step, what it achieved, or its own, `[M, ...]`.
    """

    which: Int64
    ids: Int64
    ahead: Int64
    item: Int64
    ages: Int64
    after: Int64
    copies: list[Array]


class Changes(Record):
    """The slots that became drawable, and those that stopped being drawable, since the counters were `seen`.

    Attributes:
        removed: Slots that hold no drawable item any more; some of them never did.
        added: Slots that became drawable, lane by lane, rows in order. A slot in both holds a new item.
        rows: The storage rows of `added`, to look up the ring's `given`.
        seen: The counters now, `[L, 3]`: for the next call, once these changes have been taken in.
    """

    removed: Int64
    added: Int64
    rows: Int64
    seen: Int64


class Windowed(Record):
    """The windows that start at drawable slots, each array `[B]`.

    Attributes:
        ids: The anchors' ids.
        at: The anchors' storage rows.
        after: The storage rows of the windows' successors; where none is known, of their last steps.
        steps: Steps of each window.
        discount: `gamma**steps`, or 0 where there is nothing to bootstrap from.
        terminated: Whether the last step ended its episode in a terminal state.
        truncated: Whether it was ended from outside.
    """

    ids: Int64
    at: Int64
    after: Int64
    steps: Int32
    discount: Float32
    terminated: Bool
    truncated: Bool


class Around(Record):
    """The rows at some offsets from B anchors, within their streams.

    Attributes:
        rows: Their storage rows, `[B, K]`; those of the stream's first or last step where it has none there, or the row
            of zeros.
        pad: Where it has none, `[B, K]`.
    """

    rows: Int64
    pad: Bool


class Expanded(Record):
    """Windows, and copies of the columns' rows at their anchors and successors."""

    windows: Windowed
    copies: list[Array]


class Part(Record):
    """A field of a batch of sequences: some positions of what is copied of a column.

    Attributes:
        keys: The keys that lead to it in the batch.
        begin: Its first position.
        end: The position behind its last one.
    """

    keys: tuple[str, ...]
    begin: int
    end: int


class Unrolled(Record):
    """Sequences of T steps that start at drawable slots, with windows of n steps at each of them.

    Attributes:
        ids: The anchors' ids, `[B]`.
        observed: Storage rows of the observations, `[B, T + n]`; None where they were not asked for.
        before: Storage rows of the steps before them; the row of zeros where there is none. None likewise.
        steps: Steps of the window at each step, `[B, T]`, like all that follow up to `mask`.
        discount: Its discount.
        terminated: The flags of its last step.
        truncated: Likewise.
        mask: Which steps exist.
        apart: Across episodes the windows whose successor is not the observation n positions on, as indices into
            `[B * T]`; like those that follow, `[E]` with few entries.
        successors: The storage rows of their successors.
        begins: Across episodes the positions behind an end, as indices into `[B * (T + n)]`.
        lead: How many positions are in front of the first step, for want of steps there, `[B]`.
        first: Whether that step begins an episode, or a stream, `[B]`.
    """

    ids: Int64
    observed: Int64 | None
    before: Int64 | None
    steps: Int32
    discount: Float32
    terminated: Bool
    truncated: Bool
    mask: Bool
    apart: Int64
    successors: Int64
    begins: Int64
    lead: Int64
    first: Bool


class Sequenced(Record):
    """Sequences, and copies of the columns' rows at their positions, `[B * (T + n), ...]`, or time first."""

    unrolled: Unrolled
    copies: list[Array]


class Drawn(Record):
    """Leaves of a tree and their values."""

    leaves: Int64
    values: Float64


class SampledLeaves(Record):
    """Leaves of a tree, their values, and the importance-sampling weights of what they stand for."""

    leaves: Int64
    values: Float64
    weights: Float32


class Mass(Record):
    """Powers of raw priorities, and the largest raw one; NaN where any is not finite."""

    values: Float64
    largest: float


class RowsRead(Record):
    """The first row for which there was not enough to read (-1: none), and the CRC-32 of each (0 there)."""

    failed: int
    sums: Array
