"""The kernels' types: what both back ends, `relive._ring._native` and `relive._ring.kernels_numpy`, offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .._base.types import Array, Bool, Bytes, Float32, Float64, Int32, Int64
from .plans import (
    Changes,
    ColumnLayout,
    Drawn,
    Expanded,
    Followed,
    Located,
    Mass,
    Part,
    Relabelled,
    RowsRead,
    Sampled,
    Sequenced,
    Window,
    Windows,
)

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from .._base.frozen import Record


class RingKernel(Protocol):
    """See `_ring/kernels_numpy/ring.py` and `_ring/kernels_numpy/rows.py`."""

    watched: int
    enough_ends: int

    @property
    def asked(self) -> int: ...

    def write(
        self,
        values: list[Array],
        next_values: list[Array] | None,
        terminated: Bool,
        truncated: Bool,
        lanes: Int64,
        priority: Float64 | None,
    ) -> Int64: ...
    def limit(self, limits: Int64 | None) -> None: ...
    def allow(self, lanes: Bytes | None) -> None: ...
    def look(self) -> None: ...
    def overtaken(self, ids: Int64) -> Bool | None: ...
    def snapshot(self) -> Int64: ...
    def cut(self, lanes: Int64) -> None: ...
    def changes(self, seen: Int64) -> Changes: ...
    def ids(self, slots: Int64) -> Int64: ...
    def locate(self, ids: Int64) -> Located: ...
    def follow(self, ids: Int64, steps: Int64) -> Followed: ...
    def stacks(self, newest: Int64, frames: int, repeat: bool) -> Int64: ...
    def windows(self, slots: Int64, discounts: Float32) -> Windows: ...
    def relabelled(self, slots: Int64, where: Float64, n_step: int, strategy: int) -> Relabelled: ...
    def fold(self, column: Array, starts: Int64, steps: Int32, gammas: Float64) -> Array: ...
    @staticmethod
    def fold_sequences(rewards: Array, steps: Int32, gammas: Float64, time_major: bool) -> Array: ...


class LockKernel(Protocol):
    """See `Lock` in `_ring/kernels_numpy/calls.py`."""

    def taken(self) -> bool: ...
    def attempt(self) -> bool: ...
    def still(self) -> bool: ...
    def forked(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...


class ExpansionKernel(Protocol):
    """Copies items for the native `sample`; see `Gather.transitions` and `Gather.sequences`."""


class ChooserKernel(Protocol):
    """Chooses slots for the native `sample`; see `Tree.chooser`."""


class GatherKernel(Protocol):
    """See `_ring/kernels_numpy/gather.py`."""

    def take(self, rows: list[Int64], outs: list[Array]) -> None: ...
    def taken(self, rows: list[Int64]) -> list[Array]: ...
    def expand(
        self, ring: RingKernel, slots: Int64, discounts: Float32, last: bool, outs: list[Array] | None
    ) -> Expanded: ...
    def unroll(
        self,
        ring: RingKernel,
        slots: Int64,
        length: int,
        discounts: Float32,
        time_major: bool,
        listed: bool,
        outs: list[Array] | None,
    ) -> Sequenced: ...
    def transitions(
        self,
        ring: RingKernel,
        discounts: Float32,
        keys: list[tuple[str, ...]],
        stacks: list[Stacked],
        reward: Array | None,
        gammas: Float64,
    ) -> ExpansionKernel | None: ...
    def sequences(
        self,
        ring: RingKernel,
        length: int,
        discounts: Float32,
        time_major: bool,
        shown: list[list[Part]],
        summed: int,
        gammas: Float64,
        states: list[Kept],
    ) -> ExpansionKernel | None: ...


class Stacked(Record):
    """A column of which observations show several rows, as the native `sample` copies it.

    Attributes:
        gather: Copies its rows, at the anchors (pick 0) and at the successors (pick 1).
        obs: The keys that lead to the observation in a batch.
        next_obs: Those that lead to its successor.
        frames: Rows that an observation shows.
        repeat: Whether a stream's first frame is its own padding; else zeros are.
        behind: Whether the frames are an observation's last axis.
    """

    gather: GatherKernel
    obs: tuple[str, ...]
    next_obs: tuple[str, ...]
    frames: int
    repeat: bool
    behind: bool


class Kept(Record):
    """A column that is kept at every so many steps, as the native `sample` copies it.

    Attributes:
        keys: The keys that lead to it in a batch.
        array: Its rows.
        every: At every so many steps.
    """

    keys: tuple[str, ...]
    array: Array
    every: int


class TreeKernel(Protocol):
    """See `_ring/kernels_numpy/tree.py`."""

    def get(self, indices: Int64) -> Float64: ...
    def set(self, indices: Int64, values: Float64) -> None: ...
    def fill_zero_and_set(self, removed: Int64, added: Int64, value: float) -> None: ...
    def restore(self) -> None: ...
    def find(self, prefix: Float64) -> Drawn: ...
    def draw(self, u: Float64, stratified: bool) -> Drawn: ...
    def draw_distinct(self, u: Float64) -> Drawn: ...
    def sample(
        self, u: Float64, stratified: bool, replacement: bool, scale: int, items: float, beta: float
    ) -> Sampled: ...
    def try_update(
        self, ring: RingKernel, seen: Int64, ids: Any, td_error: Any, initial: float, eps: float, alpha: float
    ) -> bool: ...
    def refresh(self, ring: RingKernel, seen: Int64, initial: float, alpha: float) -> int: ...
    def update(self, slots: Int64, td_error: Float64, keep: Bool | None, eps: float, alpha: float) -> bool: ...
    def chooser(self, ring: RingKernel, seen: Int64, draws: Float64, settings: Any) -> ChooserKernel | None: ...


class RanksKernel(Protocol):
    """See `_ring/kernels_numpy/ranks.py`."""

    def rebuild(self) -> None: ...
    def refresh(self, ring: RingKernel, seen: Int64, initial: float) -> int: ...
    def update(self, slots: Int64, td_error: Float64, keep: Bool | None, eps: float) -> bool: ...
    def chooser(self, ring: RingKernel, seen: Int64, draws: Float64, settings: Any) -> ChooserKernel | None: ...
    def draw(self, u: Float64, stratified: bool) -> Drawn: ...
    def draw_distinct(self, u: Float64) -> Drawn: ...
    def sample(
        self, u: Float64, stratified: bool, replacement: bool, scale: int, items: float, beta: float
    ) -> Sampled: ...


class QueueKernel(Protocol):
    """See `_ring/kernels_numpy/queue.py`."""

    def refresh(self) -> int: ...
    def draw(self, u: Float64) -> Int64: ...
    def draw_distinct(self, u: Float64) -> Int64: ...
    def draw_episodes(self, u: Float64) -> Int64: ...
    def chooser(self, replacement: bool) -> ChooserKernel | None: ...


class Kernels(Protocol):
    """A back end: a module with these names."""

    __name__: str

    def simd(self) -> str: ...
    def power(self, x: Float64, exponent: float) -> Float64: ...
    def mass(self, td_error: Float64, eps: float, alpha: float) -> Mass: ...
    def weights(self, values: Float64, reference: float, beta: float) -> Float32: ...
    def smallest(self, values: Float64) -> float: ...
    def order_size(self, capacity: int) -> int: ...
    def checksums(self, rows: Array) -> Array: ...
    def copy_steps(self, now: Array, later: Array, out: Array) -> bool: ...
    def scatter_rows(self, blocks: list[Array], which: Int64, rows: Int64, out: Array) -> None: ...
    def copy_ranges(self, columns: list[Array], lanes: int, block: int, ranges: Int64, outs: list[Array]) -> None: ...
    def set_ranges(self, columns: list[Array], lanes: int, block: int, ranges: Int64, values: list[Array]) -> None: ...
    def read_rows(self, files: Int64, offsets: Int64, places: Int64, out: Array) -> RowsRead: ...
    def adding(
        self,
        ring: RingKernel,
        lock: LockKernel,
        coerce: Callable[..., Array],
        refresh: Callable[[], object] | None,
        fallback: Callable[..., Int64],
        several: bool,
    ) -> Callable[..., Int64]: ...
    def sampling(
        self,
        lock: LockKernel,
        chooser: ChooserKernel,
        expansion: ExpansionKernel,
        tally: Any,
        counts: Int64,
        notices: Int64,
        first_notice: int,
        most: int,
        batch: type[Any],
        fallback: Callable[..., Any],
    ) -> Callable[..., Any]: ...
    def updating(
        self, lock: LockKernel, chooser: ChooserKernel, counts: Int64, fallback: Callable[..., int]
    ) -> Callable[..., int]: ...
    def ending(self, begun: bool) -> None: ...
    def away(self) -> int: ...
    def Lock(self) -> LockKernel: ...
    def Ring(
        self,
        columns: Sequence[ColumnLayout],
        num_obs: int,
        rows: int,
        steps: int,
        marks: Bytes,
        counters: Int64,
        clock: Int64,
        window: Window,
        given: Float64 | None,
        arrival: Int64 | None,
        touched: Int64 | None,
        notify: Callable[[int], object],
        busy: Bytes | None,
    ) -> RingKernel: ...
    def Gather(self, columns: Sequence[Array], picks: Sequence[int], mapped: bool) -> GatherKernel: ...
    def Tree(self, sums: Sequence[Float64], mins: Sequence[Float64], state: Float64) -> TreeKernel: ...
    def Ranks(
        self, tree: TreeKernel, order: Float64, raw: Float64, stamps: Int64, state: Float64, alpha: float
    ) -> RanksKernel: ...
    def Queue(self, ring: RingKernel, places: Array, firsts: Array | None, ends: Int64, seen: Int64) -> QueueKernel: ...
