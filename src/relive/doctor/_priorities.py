"""Table C: late and bad TD errors, and what they do to draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gymnasium.vector import AutoresetMode

from ._pipeline import Patient, PlainItem, WithoutHandle
from ._report import Finding

_CALLS, _ROWS = 32, 20  # rows of a lane: so that each run overwrites the one before, also where some calls only reset
EACH = 40  # draws for each stored item
LANDED = "update reaches its item"
WEIGHTS = "weights fall as priorities rise"
_RUNS = 20  # until a ring is overwritten
_LARGE = 8.0  # a TD error that shows in the draws, also with alpha 0.6
_REMEDIES = {
    "late": "let priorities name steps, not slots: drop those whose step has been overwritten since the draw",
    "finite": "refuse TD errors that are not finite before anything is changed",
    "negative": "take the absolute value of TD errors, or refuse negative ones",
    "zero": "add a small eps to priorities, and divide weights by a largest one that is not 0",
    "unfilled": "draw only slots that were written: their priority is 0 until then",
    "lands": "give the TD errors to the items in the order of the handles, and draw by the new priorities",
    "weights": "weigh an item by `(size * probability) ** -beta`: the likelier it is, the less it counts",
    "draws": "draw every stored item with a probability above 0, with finite weights",
}


Held = Counter[float]  # how many items are stored, by their observations


@dataclass
class ManyDraws:
    """The results of many draws from the items `held`."""

    held: Held
    items: list[PlainItem] = field(default_factory=list)
    raised: str = ""

    @property
    def counts(self) -> Held:
        """Draws of each item, by its observation."""
        return Counter(item.obs for item in self.items)

    def risen(self, before: ManyDraws) -> set[float]:
        """Find the items that take far more than an even share now, and did not before."""
        old, even = before.counts, len(self.items) / max(self.held.total(), 1)
        return {
            obs
            for obs, count in self.counts.items()
            if count > 2.5 * even * self.held[obs] and count > 2 * old[obs] * self.held[obs] / max(before.held[obs], 1)
        }

    def ill(self, count: int | None = None) -> str:
        """Say why these are no sound draws, in which `count` items, or all, have a share; empty if they are."""
        if self.raised:
            return f"every later `sample` raises {self.raised}"
        bad = sum(not (math.isfinite(item.weight) and item.weight > 0) for item in self.items)
        drawn, stored = len(self.counts), len(self.held) if count is None else count
        parts = [f"{drawn} of {stored} items are ever drawn"] if drawn < stored else []
        parts += [f"{'all' if bad == len(self.items) else 'some'} weights are not finite and positive"] if bad else []
        return " and ".join(parts)


def table_c(patient: Patient, mode: AutoresetMode, n_steps: Sequence[int], known: Sequence[Finding]) -> list[Finding]:
    """Make the table."""
    del n_steps, known
    if not patient.prioritizes:
        return []
    found = []
    ward = Ward(patient, mode)
    for probe, examine, remedy in _PROBES:
        patient.renew()
        verdict = examine(ward)
        if verdict is not None:  # what earlier runs did to this pipeline does not last
            found.append(Finding.of_probe(probe, "C", mode, 1, *verdict, _REMEDIES[remedy]))
    return found


Verdict = tuple[int, int, str] | None


class Ward:
    """Runs the pipeline afresh for each probe."""

    def __init__(self, patient: Patient, mode: AutoresetMode) -> None:
        self.patient, self._mode = patient, mode

    def fill(self, capacity: int = 0) -> Held:
        """Fill the buffer, of `_ROWS` rows a lane unless its capacity is given; return what it holds."""
        self.patient.run(_CALLS, 1, self._mode, capacity=capacity or self.patient.lanes * _ROWS)
        return Counter(item.obs for item in self.patient.items())

    def run(self, calls: int, *, lanes_hold: int, continues: bool = False) -> None:
        """Run the pipeline, whose lanes hold so many steps."""
        self.patient.run(calls, 1, self._mode, continues=continues, capacity=self.patient.lanes * lanes_hold)

    def overwrite(self) -> Held:
        """Fill the buffer until every old item is overwritten, and return its items, or none if it never overwrites."""
        taken = 0
        for _ in range(_RUNS):
            held = self.fill()
            taken += self.patient.world.steps
            if taken >= held.total():
                return held
        return Counter()

    def draw(self, held: Held) -> ManyDraws:
        """Draw each of the items many times."""
        drawn = ManyDraws(held)
        try:
            while len(drawn.items) < EACH * held.total():
                batch = self.patient.sample(self.patient.batch)
                drawn.items += batch
                if not batch:
                    drawn.raised = "nothing, but returns no items"
                    return drawn
        except WithoutHandle:
            raise
        except Exception as error:  # whatever it is, it is the verdict
            drawn.raised = f"`{type(error).__name__}: {error}`"
        return drawn

    @staticmethod
    def distinct(drawn: Sequence[PlainItem]) -> list[PlainItem]:
        """Return every item that was drawn, once, in the order of observations."""
        found: dict[float, PlainItem] = {}
        for item in drawn:
            found.setdefault(item.obs, item)
        return sorted(found.values(), key=lambda item: item.obs)

    def level(self, most: int | None = 8) -> tuple[list[PlainItem], Held]:
        """Fill the buffer and give all items the TD error 1; return the first of these, none if it fails, and all."""
        held = self.fill()
        items = self.distinct(self.draw(held).items)
        refused = self.update(items, [1.0] * len(items))
        return [] if refused else items[:most], held

    def update(self, items: Sequence[PlainItem], td_errors: Sequence[float]) -> str:
        """Give items their TD errors; return how the pipeline refused, or nothing."""
        try:
            self.patient.update([item.handle for item in items], td_errors)
        except Exception as error:  # any refusal will do
            return f"{type(error).__name__}: {error}"
        return ""


def _plain_draws(ward: Ward) -> Verdict:
    held = ward.fill()
    ill = ward.draw(held).ill(count=0)  # table F counts items that are never drawn
    return int(bool(ill)), 1, f"{held.total()} items without any update: {ill}"


def _lands(ward: Ward) -> Verdict:
    """Check that a large TD error of one item makes it the most drawn one."""
    chosen, held = ward.level()
    if len(chosen) < 8:
        return 1, 1, f"{held.total()} items are stored, but cannot all be drawn and updated"
    td_errors = [1.0] * 8
    td_errors[3] = 1000.0
    ward.update(chosen, td_errors)
    drawn = ward.draw(held)
    most = drawn.counts.most_common(1)[0] if drawn.items else (math.nan, 0)
    if most[0] == chosen[3].obs and most[1] > 2 * EACH:
        return 0, 1, ""
    more = "no more often than others" if most[1] <= 2 * EACH else f"less often than obs {most[0]:g}"
    shown = f"every `sample` raises {drawn.raised}" if drawn.raised else f"it is drawn {more}"
    return 1, 1, f"TD error 1000 for obs {chosen[3].obs:g}, 1 for 7 others: then {shown}"


def _weights(ward: Ward) -> Verdict:
    """Check that an item of a large TD error weighs no more than others."""
    chosen, held = ward.level()
    if len(chosen) < 8:
        return None
    ward.update(chosen, [1.0] * 3 + [1000.0] + [1.0] * 4)
    weights: dict[bool, list[float]] = {True: [0.0], False: [math.inf]}
    drawn = ward.draw(held).items
    for large in (True, False):
        weights[large] = [item.weight for item in drawn if (item.obs == chosen[3].obs) == large] or weights[large]
    most, others = max(weights[True]), max(weights[False])
    text = f"TD error 1000 for obs {chosen[3].obs:g}, 1 for 7 others: it weighs up to {most:.3g}, others {others:.3g}"
    return int(most > 1.01 * others), 1, text


def _late(ward: Ward, td_error: float, between: bool) -> Verdict:
    """Give TD errors to steps that have been overwritten since the draw."""
    before = ward.draw(ward.fill())
    chosen = ward.distinct(before.items)[:8]
    held = ward.overwrite()
    if len(chosen) < 8 or not held:
        return None
    if between:
        ward.draw(Counter([0.0]))
    ward.update(chosen, [td_error] * 8)
    drawn = ward.draw(held)
    if drawn.raised:
        return 8, 8, f"after 8 TD errors of overwritten items every `sample` raises {drawn.raised}"
    risen = drawn.risen(before)
    shown = f"{min(risen):g}" if risen else ""
    return len(risen), 8, f"TD errors of overwritten items made {len(risen)} new ones likely, such as obs {shown}"


def _bad(ward: Ward, value: float) -> Verdict:
    """Give one bad TD error among 8: it is refused as a whole, or does no harm to the draws."""
    chosen, held = ward.level()
    before = ward.draw(held)
    if len(chosen) < 8 or before.ill():
        return None
    td_errors = [_LARGE] * 8
    td_errors[3] = value
    refused = ward.update(chosen, td_errors)
    drawn = ward.draw(held)
    ill = drawn.ill()
    what = f"TD error {value:g} for obs {chosen[3].obs:g}"
    if ill:
        return 1, 1, f"{what} is {'refused' if refused else 'accepted'}; then {ill}"
    risen = drawn.risen(before)
    if refused and risen:
        return 1, 1, f"{what} is refused, but {len(risen)} of the 7 others are changed"
    return 0, 1, ""


def _zeros(ward: Ward) -> Verdict:
    held = ward.fill()
    items = ward.distinct(ward.draw(held).items)
    if len(items) < 8:
        return None
    what = f"TD error 0 for all but obs {items[0].obs:g}"
    refused = ward.update(items, [1.0, *[0.0] * (len(items) - 1)])
    if refused:
        return 1, 1, f"{what} is refused: {refused}"
    ill = ward.draw(held).ill(count=0)
    return int(bool(ill)), 1, f"{what}: {ill}"


def _unfilled(ward: Ward) -> Verdict:
    held = ward.fill(capacity=ward.patient.lanes * _CALLS + 37)
    known = {item[:4] for item in ward.patient.items()}
    drawn = ward.draw(held)
    # No step has the reward 0; a step with other values than are stored is table F's.
    ghosts = [i for i in drawn.items if i[:4] not in known and (i.reward == 0 or i.obs not in held)]
    if drawn.raised:
        return 1, 1, f"{held.total()} items in a buffer that is not full: `sample` raises {drawn.raised}"
    least = min(ghosts, key=lambda item: item.obs, default=None)
    shown = f"obs {least.obs:g}, {least}: drawn, but never stored" if least else ""
    return len(ghosts), len(drawn.items), shown


# Those that may leave a pipeline in ruins come last.
_PROBES: tuple[tuple[str, Callable[[Ward], Verdict], str], ...] = (
    ("draws without updates", _plain_draws, "draws"),
    ("slots never filled", _unfilled, "unfilled"),
    (LANDED, _lands, "lands"),
    (WEIGHTS, _weights, "weights"),
    ("late priorities", lambda ward: _late(ward, 1e6, between=False), "late"),
    ("late priorities, another draw in between", lambda ward: _late(ward, 1e9, between=True), "late"),
    ("TD error 0 for all but one", _zeros, "zero"),
    ("one negative TD error among 8", lambda ward: _bad(ward, -5.0), "negative"),
    ("one infinite TD error among 8", lambda ward: _bad(ward, math.inf), "finite"),
    ("one NaN among 8", lambda ward: _bad(ward, math.nan), "finite"),
)
PROBES_OF_PRIORITIES = tuple(probe for probe, _, _ in _PROBES)
