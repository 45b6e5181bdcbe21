"""Table F: what is drawn of what is stored, and what becomes of values that are written back."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from gymnasium.vector import AutoresetMode

from ._items import MISSING, holes
from ._pipeline import Patient, PlainItem
from ._priorities import EACH, LANDED, Verdict, Ward
from ._report import Finding
from ._world import Place

NEVER = "items never drawn"
OTHER = "drawn items that are not stored"
ALIAS = "drawn items that change later"
KEPT = "priorities after a later add"
LANDS = "a written value reaches its item"
LATE = "late values"
SAVED = "a write after a save"
RESUMED = "a write before a save"
_ROWS = 20
# Steps of a lane: the ring is not full, just full, has wrapped in its middle, and has just wrapped again.
_FILLS = (12, _ROWS, _ROWS + 7, 2 * _ROWS)
_FEW = 15  # draws of half of the items, from which on one that is never drawn counts
_LATER = 5  # runs of two calls, until a part of the ring is overwritten
_REMEDIES = {
    NEVER: "draw from all steps that are stored: `size` of them while the ring fills, and then every slot, the last "
    "and the newest one included",
    OTHER: "draw only what is stored: forget what an index, a queue or a cache knows of steps that were overwritten",
    ALIAS: "copy what is drawn: a view of the stored arrays has other steps in it once they are overwritten",
    KEPT: "take priorities of every step that is still stored, also where others have been overwritten since the draw",
    LANDS: "write each value to the step that its handle names, and to no other",
    LATE: "drop values whose step has been overwritten since the draw: let handles name steps, not slots",
    SAVED: "save a copy: what is written later must not reach what was saved",
    RESUMED: "save again what was written to since the last save, also in parts that were saved before",
}


def table_f(patient: Patient, mode: AutoresetMode, n_steps: Sequence[int], known: Sequence[Finding]) -> list[Finding]:
    """Make the table; what earlier tables found does not count again."""
    del n_steps
    names = ("sample", "write", "values", "save", "load")
    has = {name: callable(getattr(patient.pipeline, name, None)) for name in names}
    has["write"] &= has["values"]
    wrong = {check.probe for check in known if check.wrong}
    ward, found = Ward(patient, mode), []
    probes: list[tuple[str, bool, Callable[[], Verdict]]] = [
        (NEVER, has["sample"], lambda: _never(ward, wrong)),
        (OTHER, has["sample"] and "slots never filled" not in wrong, lambda: _other(ward)),
        (ALIAS, has["sample"] and patient.can_size, lambda: _alias(ward)),
        (KEPT, patient.prioritizes and LANDED not in wrong, lambda: _kept(ward)),
        (LANDS, has["sample"] and has["write"], lambda: _lands(ward)),
        (LATE, has["sample"] and has["write"], lambda: _late(ward)),
        (SAVED, all(has.values()), lambda: _saved(ward, before=False)),
        (RESUMED, all(has.values()), lambda: _saved(ward, before=True)),
    ]
    for probe, makes, examine in probes:
        patient.renew()
        verdict = examine() if makes else None
        if verdict is not None:
            found.append(Finding.of_probe(probe, "F", mode, 1, *verdict, _REMEDIES[probe]))
    return found


def _drawn(ward: Ward, many: int) -> list[PlainItem]:
    """Draw at least so many items, or none if it fails."""
    found: list[PlainItem] = []
    with contextlib.suppress(Exception):  # table C says so
        while len(found) < many:
            batch = ward.patient.draw(ward.patient.batch)
            if not batch:
                break
            found += batch
    return found


def _refusal(ward: Ward) -> str:
    try:
        ward.patient.draw(ward.patient.batch)
    except Exception as error:
        return f"every `sample` raises `{type(error).__name__}: {error}`"
    return "`sample` returns none"


def _never(ward: Ward, known: Iterable[str]) -> Verdict:
    """Count the stored steps that many draws never give."""
    never: list[tuple[Place, str, int]] = []
    of = 0
    for calls in _FILLS if ward.patient.can_size else _FILLS[:1]:
        ward.patient.renew()
        ward.run(calls, lanes_hold=_ROWS)
        world, stored = ward.patient.world, {world_place(ward, item) for item in ward.patient.items()}
        seen = Counter(item.obs for item in _drawn(ward, EACH * len(stored)))
        counts = Counter[Place | None]()
        for obs, count in seen.items():
            counts[world.place(obs)] += count
        if stored and not counts:
            return 1, 1, f"{len(stored)} items are stored, and {_refusal(ward)}"
        drawn = [place for place in counts if place is not None]
        inside = [] if MISSING in known else holes(drawn, world, 1)
        expected = sorted({place for place in [*stored, *inside] if place and place.t < place.length})
        of += len(expected)
        counted = [counts[place] for place in expected]
        if not expected or (median(counted) < _FEW and any(0 < count < _FEW for count in counted)):
            continue  # its law gives some items next to nothing
        for place in expected:
            if not counts[place]:
                lane = [other for other in expected if other.lane == place.lane]
                never.append((place, _where(place, lane, world.number(place)), calls))
    if not never:
        return 0, of, ""
    place, where, calls = min(never, key=lambda each: (not each[1], each[2], each[0]))
    text = f"obs {place.code}, {place}: never drawn after {calls} calls into a ring of {_ROWS} steps a lane{where}"
    return len(never), of, text


def world_place(ward: Ward, item: PlainItem) -> Place | None:
    """Return the place where an item starts."""
    return ward.patient.world.place(item.obs)


def _where(place: Place, lane: list[Place], number: int) -> str:
    """Say in few words which of the steps of its lane it is; empty if none in particular."""
    if number % _ROWS == _ROWS - 1 and place != lane[-1]:
        return ", in the last slot"
    return {lane[0]: ", the oldest step", lane[-1]: ", the newest step"}.get(place, "")


def _other(ward: Ward) -> Verdict:
    """Count the draws that give what is not stored, such as steps that were overwritten."""
    if ward.patient.can_size:
        ward.run(_ROWS + 7, lanes_hold=_ROWS)
        _drawn(ward, ward.patient.batch)  # it may keep what it has drawn
        ward.run(_ROWS + 3, lanes_hold=_ROWS, continues=True)
    else:
        ward.run(_ROWS, lanes_hold=_ROWS)
    stored = {item[:4] for item in ward.patient.items()}
    starts = {item[0] for item in stored}
    drawn = _drawn(ward, EACH * len(stored))
    wrong = [item for item in drawn if item[:4] not in stored]
    # What is not stored at all is worse than what differs.
    least = min(wrong, key=lambda item: (item.obs in starts, item.obs), default=None)
    if least is None:
        return 0, len(drawn), ""
    place = world_place(ward, least)
    why = "drawn with other values than `items` gives" if least.obs in starts else "drawn, though it was overwritten"
    text = f"obs {least.obs:g}, {place or 'which the environment never returned'}: {why}: {least}"
    return len(wrong), len(drawn), text


def _alias(ward: Ward) -> Verdict:
    """Count the drawn items that are others once the ring has been overwritten."""
    ward.run(_ROWS + 7, lanes_hold=_ROWS)
    with contextlib.suppress(Exception):  # table C says so
        read = ward.patient.drawn(ward.patient.batch)
        before = [item[:4] for item in read()]
        ward.run(_ROWS + 3, lanes_hold=_ROWS, continues=True)
        changed = sorted((old, new[:4]) for old, new in zip(before, read(), strict=True) if old != new[:4])
        shown = (
            f"obs {changed[0][0][0]:g} was drawn, and is obs {changed[0][1][0]:g} after later adds" if changed else ""
        )
        return len(changed), len(before), shown
    return None


def _kept(ward: Ward) -> Verdict:
    """Check that priorities land on stored steps, though others were overwritten since the draw."""
    chosen, _ = ward.level(most=None)
    stored = {item.obs for item in chosen}
    for _ in range(_LATER):
        if not all(item.obs in stored for item in chosen):
            break
        ward.run(2, lanes_hold=_ROWS, continues=True)
        stored = {item.obs for item in ward.patient.items()}
    left = [item for item in chosen if item.obs in stored]
    if not left or not ward.patient.can_size:
        return None
    refused = ward.update(left, [1.0] * (len(left) - 1) + [1000.0])
    drawn = ward.draw(Counter(stored))
    if drawn.counts[left[-1].obs] > 2 * EACH:
        return 0, 1, ""
    what = f"TD error 1000 for obs {left[-1].obs:g}, which is stored, given after a later add"
    return 1, 1, f"{what}: {f'refused, {refused}' if refused else 'it is drawn no more often than others'}"


def _values(ward: Ward) -> dict[float, float]:
    """Return the written value of each item; nothing if two have one observation, from an earlier run."""
    items = ward.patient.items()
    with ward.patient.sound("values"):
        found = {item.obs: float(value) for item, value in zip(items, ward.patient.pipeline.values(), strict=True)}
    return found if len(found) == len(items) else {}


def _written(ward: Ward, items: Sequence[PlainItem], value: float) -> dict[float, float]:
    """Write a value to each item, one more for each; return them by observation."""
    given = {item.obs: value + at for at, item in enumerate(items)}
    ward.patient.pipeline.write([item.handle for item in items], [*given.values()])
    return given


def _lands(ward: Ward) -> Verdict:
    ward.run(_ROWS + 7, lanes_hold=_ROWS)
    items = Ward.distinct(_drawn(ward, EACH))[:8]
    before = _values(ward)
    if not before:
        return None
    given = _written(ward, items, 101.0)
    wanted, now = {**before, **given}, _values(ward)
    wrong = sorted(obs for obs, value in wanted.items() if now.get(obs) != value)
    if not wrong:
        return 0, len(given), ""
    obs = wrong[0]
    what = f"{given[obs]:g} was written to it" if obs in given else "nothing was written to it"
    return len(wrong), len(wanted), f"obs {obs:g}: {what}, and its value is {now.get(obs)}"


def _late(ward: Ward) -> Verdict:
    ward.run(_ROWS + 7, lanes_hold=_ROWS)
    items = Ward.distinct(_drawn(ward, EACH))[:8]
    for _ in range(3):
        ward.run(_ROWS + 3, lanes_hold=_ROWS, continues=True)
    before = _values(ward)
    if not before or {item.obs for item in items} & before.keys():
        return None  # not all of them were overwritten
    try:
        given = _written(ward, items, 101.0)
    except Exception:  # any refusal will do
        return 0, len(items), ""
    now = _values(ward)
    wrong = sorted(obs for obs, value in before.items() if now.get(obs) != value)
    if not wrong:
        return 0, len(given), ""
    text = f"obs {wrong[0]:g} has the value {now.get(wrong[0])}, which was written to a step overwritten before"
    return len(wrong), len(given), text


def _saved(ward: Ward, before: bool) -> Verdict:
    """Write, save, and write again; then load. Where `before`, the first write comes after a first save."""
    pipeline = ward.patient.pipeline
    ward.run(_ROWS + 7, lanes_hold=_ROWS)
    items = Ward.distinct(_drawn(ward, EACH))[:8]
    if not _values(ward):
        return None
    with ward.patient.sound("save"):
        if before:
            pipeline.save()
        given = _written(ward, items, 101.0)
        saved = pipeline.save()
        if not before:
            _written(ward, items, 901.0)
    ward.patient.renew()
    with ward.patient.sound("load"):
        ward.patient.pipeline.load(saved)
    now = _values(ward)
    wrong = sorted(obs for obs, value in given.items() if now.get(obs) != value)
    if not wrong:
        return 0, len(given), ""
    order = "saved, and written again before the next save" if before else "saved after it was written"
    text = f"obs {wrong[0]:g}: {order} as {given[wrong[0]]:g}, and after a load it is {now.get(wrong[0])}"
    return len(wrong), len(given), text
