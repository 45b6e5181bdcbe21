"""What a benchmark file states: settings, peers, how one timed piece of work runs, and what relive has to reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.peers import NO_LIBRARY, WITHOUT_PRIORITIES, Peer

Run = Callable[[int], tuple[float, float] | None]
"""Does so many calls; returns (wall, CPU) seconds only where it keeps its own clock."""


class Found(NamedTuple):
    """The values that `prepare` measured itself, since they cannot be repeated: one a call, in the cell's unit.

    `cpu` has the calls' CPU times where those that shared their core are to be left out.
    """

    values: tuple[float, ...]
    cpu: tuple[float, ...] = ()


@dataclass(frozen=True)
class Scale:
    """The size and duration: `FULL` for figures that count, `QUICK` for a look, `TINY` to see that all of it runs."""

    name: str
    capacity: int
    sizes: tuple[int, ...]
    rounds: int
    chunk: float  # seconds one peer runs before the next one's turn
    warm: float  # seconds of calls before the first timed chunk


FULL = Scale("full", 1_000_000, (10_000, 100_000, 1_000_000, 10_000_000), rounds=120, chunk=0.005, warm=0.3)
QUICK = Scale("quick", 1_000_000, (10_000, 1_000_000), rounds=40, chunk=0.004, warm=0.1)
TINY = Scale("tiny", 8_192, (4_096,), rounds=2, chunk=0.0005, warm=0.0)


@dataclass(frozen=True)
class Setting:
    """One column: `values` reach `prepare`; `nbytes` is what one peer's buffer needs, to refuse what cannot fit.

    Settings of one `table` stand side by side; where there are several tables the label need not repeat its name.
    A `fresh` one gets new processes, for what depends on what a process has done before. `unit` and `scale` are for
    cells that are no times, or are shown in another unit than the question's; the label then says which.
    """

    key: str
    label: str
    values: Mapping[str, Any]
    nbytes: int = 0
    table: str = ""
    fresh: bool = False
    unit: str = "µs"
    scale: float | None = None  # from the cell's unit to the table's
    base: str = ""  # the key of the plain form that stands in the same row


@dataclass(frozen=True)
class Cell:
    """Microseconds a call: the 20th percentile and the median of the chunks; `cpu` is CPU time over wall time.

    A setting that is no time has values of its own `unit`. Where single calls were timed both are over calls instead,
    and `p99` is there, too.
    """

    p20: float
    median: float
    chunks: int
    calls: int
    cpu: float
    p99: float | None = None

    @property
    def figure(self) -> float:
        """The figure to compare: the 20th percentile of the chunks, or the median of single calls."""
        return self.p20 if self.p99 is None else self.median


@dataclass
class Row:
    """One peer: its version, its cells by setting, and why a cell or the whole row is missing.

    `memory` is what its buffer took, in bytes a step, where the question weighs it.
    """

    version: str = ""
    output: str = ""
    cells: dict[str, Cell] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    missing: str = ""
    memory: float | None = None


@dataclass(frozen=True)
class Target:
    """One line of what is asked. `measure` gives the figure, or None where something it needs was not measured."""

    text: str
    measure: Callable[[Answer], float | None]
    at_least: float | None = None
    at_most: float | None = None
    key: str = ""  # of the setting in whose row it stands
    unit: str = ""  # of the figure, where it is no ratio

    def holds(self, figure: float) -> bool:
        return (self.at_least is None or figure >= self.at_least) and (self.at_most is None or figure <= self.at_most)


@dataclass(frozen=True)
class Question:
    """One benchmark file."""

    name: str
    title: str
    text: str
    peers: tuple[str, ...]
    settings: Callable[[Scale], list[Setting]]
    prepare: Callable[[Peer, Mapping[str, Any]], Run | Found]
    targets: tuple[Target, ...] = ()
    max_rounds: int = 1_000
    max_calls: int = 1 << 20  # a chunk
    kind: str = "transitions"  # which of a peer's adapters
    single: bool = False  # time every call by itself: the median and the 99th percentile of calls
    memory: str = ""  # the key of the setting at which `prepare` weighs the buffer
    growth: bool = False  # a last column: the last setting of a table over its first
    gpu: bool = False  # the peers see a GPU
    notice: Callable[[Answer], str] | None = None  # what the report says above the tables of the machine
    alone: bool = False  # one peer after another through all settings, where they have no room side by side
    unit: str = "µs"  # "": every label says its own
    unit_scale: float = 1.0  # from microseconds to the table's unit


@dataclass
class Answer:
    """The results of one run of a question."""

    question: Question
    scale: Scale
    settings: list[Setting]
    rows: dict[str, Row]

    def figure(self, peer: str, key: str, *, tail: bool = False) -> float | None:
        """Return a peer's figure, or its 99th percentile, in microseconds; None where it was not measured."""
        row = self.rows.get(peer)
        cell = row.cells.get(key) if row else None
        if cell is None:
            return None
        return cell.p99 if tail else cell.figure

    def best(self, key: str, *, prioritized: bool = False) -> tuple[str, float] | None:
        """Return the fastest library, or the fastest prioritized one, at a setting; relive and NumPy are none."""
        found = []
        for name, row in self.rows.items():
            if name in NO_LIBRARY or key not in row.cells:
                continue
            if prioritized and name in WITHOUT_PRIORITIES:
                continue
            found.append((row.cells[key].figure, name))
        return (min(found)[1], min(found)[0]) if found else None


Measure = Callable[[Answer], float | None]


def times_faster(key: str, *, than: str = "library") -> Measure:
    """Measure how many times faster relive is than the best `library`, the best `prioritized` one, or a named peer."""

    def measure(answer: Answer) -> float | None:
        own = answer.figure("relive", key)
        if than in ("library", "prioritized"):
            best = answer.best(key, prioritized=than == "prioritized")
            other = best[1] if best else None
        else:
            other = answer.figure(than, key)
        return other / own if own and other else None

    return measure


def figure_of(peer: str, key: str, *, scale: float = 1.0, tail: bool = False) -> Measure:
    """Measure a peer at `key`, in the cell's unit times `scale`; its 99th percentile if `tail`."""

    def measure(answer: Answer) -> float | None:
        figure = answer.figure(peer, key, tail=tail)
        return None if figure is None else figure * scale

    return measure


def over(top: Measure, bottom: Measure) -> Measure:
    """Measure the ratio of two figures."""

    def measure(answer: Answer) -> float | None:
        above, below = top(answer), bottom(answer)
        return above / below if above and below else None

    return measure


def own_ratio(key: str, base: str, *, tail: bool = False) -> Measure:
    """Measure relive at `key` over relive at `base`; their 99th percentiles if `tail`."""
    return over(figure_of("relive", key, tail=tail), figure_of("relive", base, tail=tail))


def own_figure(key: str, scale: float = 1.0) -> Measure:
    """Measure relive at `key`, in the cell's unit times `scale`."""
    return figure_of("relive", key, scale=scale)


def ratio_to(peer: str, key: str) -> Measure:
    """Measure relive's time over a peer's."""
    return over(figure_of("relive", key), figure_of(peer, key))


def memory_of(peer: str) -> Measure:
    """Measure the bytes a step that a peer's buffer took."""

    def measure(answer: Answer) -> float | None:
        row = answer.rows.get(peer)
        return row.memory if row else None

    return measure


own_memory = memory_of("relive")


def times_smaller(peer: str) -> Measure:
    """Measure how many times the memory of relive's buffer a peer's took."""
    return over(memory_of(peer), own_memory)


def count(n: int) -> str:
    """Write a number of items as a table's head does: 10^6 where it is a power of ten.

    >>> count(1_000_000), count(4096)
    ('10^6', '4,096')
    """
    power = len(str(n)) - 1
    return f"10^{power}" if n == 10**power and power > 3 else f"{n:,}"
