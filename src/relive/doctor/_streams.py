"""Table B: items where the ring has wrapped, and where environments were reset in mid-episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from ._items import MISSING, NO_STEP, REMEDIES, TWICE, Fault, judge
from ._pipeline import Patient
from ._report import Finding

WRAPS = "ring wraps in mid-episode"
RESETS = "reset in mid-episode"
_WRAPPED = (
    (6, 23),
    (7, 30),
    (7, 41),
    (10, 60),
)  # steps that a lane holds, and calls: two lanes end in mid-episode
_CALLS, _RESET_AT = 30, (11, 26)
_MOST_CALLS = 450  # an environment has 100 episodes
_REMEDIES = {
    WRAPS: "end n-step windows at the newest step: what follows it in the ring is the oldest one",
    RESETS: "tell the buffer that the stream ends (`cut`, `on_episode_end`), or compare each `obs` with the `next_obs` "
    "before it",
}


def table_b(patient: Patient, mode: AutoresetMode, n_steps: Sequence[int], known: Sequence[Finding]) -> list[Finding]:
    """Make the table; faults of a kind that table A found in this mode do not count again."""
    found = []
    for n_step in n_steps:
        old = {c.probe for c in known if c.wrong and (c.autoreset_mode, c.n_step) == (mode.name.lower(), n_step)}
        # Table F says which of them is never drawn.
        old |= {MISSING} if n_step == 1 and callable(getattr(patient.pipeline, "sample", None)) else set()
        for probe, runs in ((WRAPS, _wrapping(patient)), (RESETS, _resetting(patient))):
            wrong, of, shown = 0, 0, list[Fault]()
            for calls, choices in runs:
                patient.renew()
                patient.run(calls, n_step, mode, **choices)
                items, world = patient.items(), patient.world
                if probe == WRAPS and not patient.can_size and len(items) >= 0.9 * world.steps:
                    continue  # it did not wrap
                new = [fault for fault in judge(items, world, n_step) if fault.probe not in old]
                texts = list(dict.fromkeys(fault.text for fault in new))  # an item with several faults is one item
                wrong, of = wrong + len(texts), of + len(items)
                shown = shown or new[:1]
            example = f"{shown[0].probe}: {shown[0].text}" if shown else ""
            if of:
                remedy = REMEDIES[shown[0].probe] if shown and shown[0].probe in (NO_STEP, TWICE) else _REMEDIES[probe]
                found.append(Finding.of_probe(probe, "B", mode, n_step, wrong, of, example, remedy))
    return found


def _wrapping(patient: Patient) -> list[tuple[int, dict[str, Any]]]:
    if not patient.can_size:
        return [(_MOST_CALLS, {})]
    return [(calls, {"capacity": patient.lanes * ring}) for ring, calls in _WRAPPED]


def _resetting(patient: Patient) -> list[tuple[int, dict[str, Any]]]:
    return [(_CALLS, {"reset_at": _RESET_AT})] if patient.can_reset else []
