"""Table D: what a draw does to the stored steps, and whether its sums are fit for as many rows as a GPU holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.types import Float64, Int64

from ._pipeline import Patient, on_host
from ._report import Finding

CHANGES = "a draw changes what is stored"
MASSES = "draws by mass at 42 million rows"
_CALLS, _ROWS = 32, 20  # a full ring, that has wrapped
_DRAWS = 8
BATCH = 2**16  # of draws by mass in relive's own pipelines: the strata of a larger one would hide rounding
# Sums before a row know nothing of the number of rows: one mass stands for most of the 42 million.
_TOTAL, _ONES, _ZEROS, _POSITIONS = 42_000_000, 2**20, 2**16, 2**19
_REMEDIES = {
    CHANGES: "change a copy: an exception in mid-draw, and another thread or stream, meet the changed values",
    MASSES: "sum masses in float64, and draw with 53 random bits: float32 has 24, and of more rows than 2**24 it draws "
    "some twice as often and some never",
}


def table_d(patient: Patient, mode: AutoresetMode, n_steps: Sequence[int], known: Sequence[Finding]) -> list[Finding]:
    """Make the table."""
    del known
    found = []
    samples = callable(getattr(patient.pipeline, "sample", None))
    for n_step in n_steps if samples and patient.can_look else ():
        patient.renew()
        wrong, example = _changes(patient, n_step, mode)
        found.append(Finding.of_probe(CHANGES, "D", mode, n_step, wrong, _DRAWS, example, _REMEDIES[CHANGES]))
    if patient.can_choose:
        patient.renew()
        faults = _misdrawn(patient)
        wrong, example = int(bool(faults)), next(iter(faults), "")
        found.append(Finding.of_probe(MASSES, "D", mode, 1, wrong, 1, example, _REMEDIES[MASSES]))
    return found


def _changes(patient: Patient, n_step: int, mode: AutoresetMode) -> tuple[int, str]:
    """Count the draws that wrote to stored arrays, and say what the first of them did."""
    patient.run(_CALLS, n_step, mode, capacity=patient.lanes * _ROWS)
    wrong, example = 0, ""
    for _ in range(_DRAWS):
        watch = _Watch(patient.arrays())
        with patient.sound("sample"), watch:
            patient.pipeline.sample(patient.batch)
        text = watch.verdict(patient.arrays())
        wrong, example = wrong + bool(text), example or text
    return wrong, example


class _Watch:
    """Looks at arrays before each line of Python that runs inside the block.

    PyTorch counts what is written to a tensor, which shows writes between two lines, too.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._before = {name: _values(array) for name, array in arrays.items()}
        self._versions = {name: _version(array) for name, array in arrays.items()}
        self._seen: dict[str, tuple[str, int] | None] = {}  # where each array was first seen changed
        self._line: tuple[str, int] | None = None

    def __enter__(self) -> None:
        self._outer = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *raised: object) -> None:
        sys.settrace(self._outer)

    def _trace(self, frame: FrameType, event: str, value: Any) -> Any:
        for name in self._changed(self._arrays):
            self._seen.setdefault(name, self._line)
        self._line = frame.f_code.co_filename, frame.f_lineno
        return self._trace

    def _changed(self, arrays: Mapping[str, Any]) -> Iterator[str]:
        return (name for name, values in self._before.items() if _values(arrays[name]) != values)

    def verdict(self, arrays: Mapping[str, Any]) -> str:
        """Say what became of the arrays, `arrays` being what the pipeline has now; empty if they are as before."""
        lasting = {*self._changed(self._arrays), *self._changed({**self._arrays, **arrays})}
        written = {name for name, array in self._arrays.items() if _version(array) != self._versions[name]}
        for name in self._before:
            seen = self._seen.get(name)
            where = f" ({Path(seen[0]).name}, line {seen[1]})" if seen else ""
            if name in lasting:
                return f"`sample` draws items and changes `{name}`{where}"
            if name in written or name in self._seen:
                return f"while `sample` draws items it writes to `{name}`{where}, and puts it back"
        return ""


def _values(array: Any) -> object:
    try:
        return on_host(array).tobytes()
    except TypeError:  # of a dtype that NumPy does not know, such as bfloat16
        return str(array.tolist())


def _version(array: Any) -> int:
    """Return how often a tensor has been written to; 0 where nothing counts that."""
    try:
        return int(array._version)
    except (AttributeError, RuntimeError):  # an array; a tensor made in inference mode
        return 0


def _misdrawn(patient: Patient) -> list[str]:
    """Say what is wrong with positions drawn by masses: one of 41 million, 2**20 of 1, and 2**16 of 0."""
    masses: Float64 = np.zeros(1 + _ONES + _ZEROS)
    masses[0], masses[1 : 1 + _ONES] = _TOTAL - _ONES, 1.0
    at = patient.choose(masses, _POSITIONS)
    return [text for text, wrong in _laws(at) if wrong]


def _laws(at: Int64) -> Iterator[tuple[str, bool]]:
    """Yield each law of the draws, and whether it is broken: by six standard deviations, once in 10^9 times."""
    zeros = int((at > _ONES).sum())
    yield f"items of mass 0 are drawn {zeros} times", zeros > 0
    ones = at[(at > 0) & (at <= _ONES)] - 1
    share = len(at) * _ONES / _TOTAL
    text = f"{_ONES} items of mass 1 behind one of {_TOTAL - _ONES} are drawn {len(ones)} times instead of {share:.0f}"
    yield text, abs(len(ones) - share) > 6 * share**0.5
    # Two draws of one item: as many as there are pairs for each item. Draws from strata have fewer.
    counts = np.bincount(ones, minlength=_ONES)
    pairs, most = int((counts * (counts - 1) // 2).sum()), len(ones) ** 2 / 2 / _ONES
    text = f"of {len(ones)} draws among {_ONES} items of mass 1 behind one of {_TOTAL - _ONES}"
    yield f"{text}, {pairs} pairs fall on one item instead of {most:.0f}", pairs > most + 6 * most**0.5
    # What is rounded to multiples of 2, 4 or 8 is drawn by its place; strata do not hide it.
    places, even = np.bincount(ones % 8, minlength=8), len(ones) / 8
    text = f"{text}, every eighth is drawn {places.min()} to {places.max()} times instead of {even:.0f}"
    yield text, bool(np.abs(places - even).max() > 6 * max(even, 1.0) ** 0.5)
