"""Table E: a draw in the middle of an add, and adds in the middle of a draw, at each line of Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from gymnasium.vector import AutoresetMode

from ._interleave import Beside, Lines
from ._items import Fault, faults_of
from ._pipeline import Patient, PlainItem
from ._report import Finding

IN_ADD = "draws in mid-add"
IN_DRAW = "adds in mid-draw"
_ROWS = 5  # rows of a lane: the fewest in which each of 5 calls overwrites another one
_FULL = 11  # calls after which the ring has wrapped, and is full even if some calls only reset
_ADDS = 8  # calls that are examined: with ends of both kinds, and the last row of the ring
_MOST_DRAWS, _MOST_LINES = 400, 40  # enough of them, if a call has many lines
_EACH = 16  # items for each row: one is missing from all of them once in 10^7 times
_CALLS = 450  # an environment has 100 episodes
_REMEDIES = {
    IN_ADD: "hold one lock for the whole of `add` and the whole of `sample`, or use a buffer that has it, such as "
    "`relive.ReplayBuffer` or `relive.lerobot.ReplayBuffer`",
    IN_DRAW: "copy all fields of the drawn items under the lock that `add` takes, not their positions alone",
}

Key = tuple[float, float, float, float]


def table_e(patient: Patient, mode: AutoresetMode, n_steps: Sequence[int], known: Sequence[Finding]) -> list[Finding]:
    """Make the table, for pipelines whose buffers are used from threads.

    A fault of a kind that items have without threads, too, does not count.
    """
    del n_steps  # an item of several steps may be shorter during an add, and right
    if not (patient.threaded and callable(getattr(patient.pipeline, "sample", None))):
        return []
    old = {check.probe for check in known if check.wrong and check.autoreset_mode == mode.name.lower()}
    found = []
    for probe, examine in ((IN_ADD, _draws_in_adds), (IN_DRAW, _adds_in_draws)):
        patient.renew()
        wrong, of, example = examine(patient, mode, old)
        found.append(Finding.of_probe(probe, "E", mode, 1, wrong, of, example, _REMEDIES[probe]))
    return found


class _Draws:
    """The results of draws, each with the line at which the other thread was stopped."""

    def __init__(self, patient: Patient) -> None:
        self._patient = patient
        self._given: list[tuple[str, set[Key] | str]] = []

    def make(self, n: int, where: Callable[[], str]) -> None:
        """Draw items; an exception is kept: it may come from what the other thread did meanwhile."""
        try:
            given: set[Key] | str = _keys(self._patient.draw(n))
        except Exception as error:
            given = f"`sample` raises `{type(error).__name__}: {error}`"
        self._given.append((where(), given))

    def verdict(self, old: Collection[str]) -> tuple[int, int, str]:
        """Count the draws that had an item that is wrong, and all of them, and show the first."""
        wrong = [text for where, given in self._given if (text := self._fault(where, given, old))]
        return len(wrong), len(self._given), next(iter(wrong), "")

    def _fault(self, where: str, given: set[Key] | str, old: Collection[str]) -> str:
        if isinstance(given, str):
            return f"{where}: {given}"
        texts = (fault.text for fault in _faults(given, self._patient) if fault.probe not in old)
        return next((f"{where}: {text}" for text in texts), "")


def _keys(items: Sequence[PlainItem]) -> set[Key]:
    return {item[:4] for item in items}


def _faults(keys: set[Key], patient: Patient) -> Iterator[Fault]:
    """Yield each fault, by the order of the items."""
    for key in sorted(keys):
        yield from faults_of(PlainItem(*key, handle=None, weight=1.0), patient.world, 1)


def _draws_in_adds(patient: Patient, mode: AutoresetMode, old: set[str]) -> tuple[int, int, str]:
    """Run the pipeline, and draw in another thread at each line of what follows some of its steps.

    Args:
        patient: The pipeline.
        mode: The autoreset mode.
        old: Kinds of faults that do not count; those of items drawn between two adds come to it.
    """
    n, draws, steps, made = patient.lanes * _ROWS * _EACH, _Draws(patient), 0, 0

    def pause() -> None:
        nonlocal made
        if made < _MOST_DRAWS:
            made += learner.turn()

    def gate() -> None:
        """Let the learner finish: before a step of an environment nothing is being added."""
        nonlocal steps
        lines.on = False
        learner.finish()
        call, lane = divmod(steps, patient.lanes)
        steps += 1
        if lane == patient.lanes - 1 and _FULL <= call < _FULL + _ADDS and made < _MOST_DRAWS:
            old.update(_kinds(patient, n))
            lines.on = True

    def work(ready: Callable[[], None]) -> None:
        while True:
            ready()
            at = lines.at
            draws.make(n, lambda: f"drawn while a step is added, {at}")  # noqa: B023 - it is called at once

    lines = Lines(pause)
    lines.on = False
    with Beside(work) as learner:
        with lines:
            patient.run(_FULL + 2 * _ADDS, 1, mode, gate=gate, capacity=patient.lanes * _ROWS)
        learner.finish()
    return draws.verdict(old)


def _adds_in_draws(patient: Patient, mode: AutoresetMode, old: set[str]) -> tuple[int, int, str]:
    """Draw a batch for each line of a draw, at which the pipeline, in another thread, overwrites the whole ring."""
    draws, chosen, left, at = _Draws(patient), 0, 0, ""

    def overwrite() -> None:
        nonlocal left, at
        if lines.passed == chosen:
            left, at = patient.lanes * (_ROWS + 1), lines.at
        while left and collector.turn():  # else it waits for the draw, as it should
            left -= 1

    def run(ready: Callable[[], None]) -> None:
        patient.run(_CALLS, 1, mode, gate=ready, capacity=patient.lanes * _ROWS)

    with Beside(run) as collector:
        for _ in range(patient.lanes * _FULL):
            collector.turn()
        lines = Lines(overwrite)
        with lines:
            old.update(_kinds(patient, patient.batch))
        many = lines.passed
        for number in range(1, many + 1, max(1, -(-many // _MOST_LINES))):
            chosen, left = number, 0
            lines = Lines(overwrite)
            with lines:
                draws.make(patient.batch, lambda: f"drawn while the ring is overwritten, {at}")
            collector.finish()
    return draws.verdict(old)


def _kinds(patient: Patient, n: int) -> set[str]:
    """Return the kinds of faults in items that are drawn now."""
    with patient.sound("sample"):
        return {fault.probe for fault in _faults(_keys(patient.draw(n)), patient)}
