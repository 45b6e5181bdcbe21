"""What is wrong for an argument beyond its type in the stub: by call and argument, as patterns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from border_tools import LANES, ROWS, STORAGE, lived, native
from spoilers import (
    Spoilers,
    arrays,
    attributes,
    floats,
    indices,
    lists,
    numbers,
    objects,
    put_in_column,
    whole_numbers,
    writable,
)  # fmt: skip

from relive._ring.plans import Stacked
from relive.sum_tree import allocate

HUGE = (2**62, 2**63 - 1, -(2**63))
NAMES: Spoilers = {"text": lambda a: "1", "no names": lambda a: (), "a number": lambda a: 1}
TWICE: Spoilers = {"a lane twice": lambda a: np.array([2, 0, 2])}
UNIFORMS, BAD = numbers(-0.1, 1.0, 2.0, np.nan, np.inf, -np.inf), numbers(-1.0, np.nan, np.inf, -np.inf)


def filled_with(*values: float) -> Spoilers:
    return {f"all {value}": lambda a, value=value: np.full_like(a, value) for value in values}


def in_columns(count: int, *values: int) -> Spoilers:
    return {f"{column}={value}": put_in_column(column, value) for column in range(count) for value in values}


LAYOUT: Spoilers = {
    **attributes(
        replace, keys=[(), None, 3, (1,), (b"a",), [None]], frames=[0, -1, 1, 3, 9, 2**62, 2**64, None, "2", 1.5],
        shape=[(), None, 2, (2, 5), (4,), (-2, -4), (2**62, 4), ("2", 4), (2, 4, 1)], repeat=[None, 2, "yes"],
        every=[1, 2, -1, 2**64, None, "2"], whole=[None, 2, "yes"],
    ),
    **{f"array: {name}": lambda layout, spoil=spoil: replace(layout, array=spoil(layout.array))
       for name, spoil in writable(arrays()).items()},
    "an array": lambda layout: layout.array,
}  # fmt: skip
STATE: Spoilers = {
    **attributes(replace, every=[-1, 0, 2**64]),
    "a row more": lambda layout: replace(layout, array=np.concatenate([layout.array, layout.array[:1]])),
}
SIZES = [-1, 0, 9, 2**62, 2**64, None, "1", 1.5]
STACKS = attributes(
    Stacked._replace, gather=[None, native.Gather([], [], False)], obs=[(), "text", None], next_obs=[(), "text", None],
    frames=[0, -1, ROWS + 2, 2**63, None, 2.5], repeat=[None, 2], behind=[None, "yes"],
)  # fmt: skip


def broken_parts() -> Spoilers:
    """Parts of sequences that are shown by no name, or from or to no step."""

    def second(*part: Any) -> Any:
        return lambda shown: [shown[0], [part], shown[2]]

    limits, keys = (-1, 6, 2**62, 2**64, None, "1"), {"text": "1", "no names": (), "a number": 1}
    return {
        **lists({"text": lambda a: "1", "a number": lambda a: 1, "a part": lambda a: a[0]}),
        **{f"keys: {name}": second(value, 0, 1) for name, value in keys.items()},
        **{f"begin {value}": second(("a",), value, 4) for value in limits},
        **{f"end {value}": second(("a",), 0, value) for value in limits},
    }


def broken_states() -> Spoilers:
    """States of sequences without a name, an array of the ring, or a number of steps between them."""
    changed = {f"keys: {name}": lambda s, spoil=spoil: (spoil(s[0]), *s[1:]) for name, spoil in NAMES.items()}
    changed |= {f"array: {name}": lambda s, spoil=spoil: (s[0], spoil(s[1]), 2) for name, spoil in arrays().items()}
    changed |= {f"every {n}": lambda s, n=n: (*s[:2], n) for n in (-1, 0, 1, 3, 2**64, None)}
    whole = lists({"text": lambda a: "1", "a number": lambda a: 1})
    return {**whole, **{name: lambda a, spoil=spoil: [spoil(a[0])] for name, spoil in changed.items()}}


CHUNKS: Spoilers = {
    "a number": lambda a: 1, "no array": lambda a: (("chunk",), 1), "no names": lambda a: ((), a[0][1]),
    "text": lambda a: ("chunk", a[0][1]), "another ring's": lambda a: (("chunk",), np.zeros(3)),
}  # fmt: skip
PICKS: Spoilers = {"-1": lambda a: -1, "None": lambda a: None, "text": lambda a: "1", "2**64": lambda a: 2**64}
ENTRIES: Spoilers = {**filled_with(-1, 0, ROWS, 2**31 - 1), "backwards in each lane": lambda a: a[:, ::-1].copy()}
GARBAGE: Spoilers = {f"{n}": lambda a, n=n: [np.full_like(level, n) for level in a] for n in (np.nan, np.inf, -1.0)}
LATE: Spoilers = {"overwritten": lambda a: a * 0, "never issued": lambda a: a + 2**40}
TOO_MANY: Spoilers = {"too many": lambda a: np.ones(ROWS + 2, np.float32)}

WRONG: dict[str, Spoilers] = {
    "copying.lanes": whole_numbers(-1),
    "shuffled.numbers": numbers(-0.1, 1.0, np.nan, np.inf),
    "put_rows.which": indices(5),
    "*_ranges.lanes": whole_numbers(-1, 0, 2, 5, 2**62),
    "*_ranges.block": whole_numbers(-1, 0, 3, 2**62),
    "copy_ranges.ranges": numbers(-1, 2, 8, *HUGE),
    "set_ranges.ranges": numbers(-2, 2, 8, *HUGE),
    "read_*.files": numbers(-1, 2**31, 2**32, 2**62),
    "read_*.offsets": numbers(-1, 2**62, 2**63 - 1),
    "read_spans.sizes": numbers(-1, 25, 2**62, 2**63 - 1),
    "read_spans.places": numbers(-1, 25, 2**62, 2**63 - 1),
    "read_rows.places": indices(4),
    "read_fields.files": numbers(-1, 2**62, 2**63 - 1), "read_fields.targets": indices(5),
    "read_fields.which": numbers(3, 2**62, 2**63 - 1), "read_fields.rows": {"huge": lambda a: a + 2**62},
    "read_fields.fields": in_columns(5, -2, 4, 2**62),
    "sort_rows.samples": numbers(2, 9, 2**62, -(2**63)), "sort_rows.before": {"one": lambda a: a[:1]},
    "listed.ids": indices(LANES * ROWS),
    "listed.at": {str(place): lambda a, place=place: a + place for place in (-1, 4, 7, 8, 2**62)},
    "listed.size": whole_numbers(-1, 0, 2**64),
    "blending.leader": whole_numbers(-2, 3, 2**62),
    "blending.shares": numbers(-0.1, 0.0, np.nan, np.inf),
    "*.settings": objects(1),
    "sampling.tally": objects(lived()[0]),
    "sampling.first_notice": whole_numbers(2**64), "sampling.most": whole_numbers(2**64),
    "joined.parts": lists({"a dict": lambda a: {}}),
    "*.seen": numbers(-1, *HUGE),
    "Tree.*.eps": floats(-1.0, np.nan, np.inf), "*.initial": floats(-1.0, np.nan, np.inf),
    "*.n_step": whole_numbers(-1, 0, ROWS + 1, 2**62, 2**64),
    "*.strategy": whole_numbers(-1, 3, 2**62, 2**64),
    "*.u": UNIFORMS,
    "[REGQ]*.slots": indices(LANES * ROWS), "Tree.update.slots": indices(104),
    "Tree.*.indices": indices(104), "Tree.*.removed": indices(104), "Tree.*.added": indices(104),
    "Tree.__init__.sums": GARBAGE, "Tree.__init__.mins": GARBAGE,
    "Tree.keep_raws.raws": {"another length": lambda _: native.Tree(*allocate(7000))},
    "Tree.set.values": BAD,
    "Tree.fill_zero_and_set.value": floats(-1.0, np.nan, np.inf),
    "Tree.find.prefix": numbers(np.nan),
    "Tree.draw_distinct.u": {"too many": lambda a: np.full(101, 0.5)},
    "Tree.sample.u": {"too many": lambda a: np.full(101, 0.5)},
    "Tree.sample.scale": whole_numbers(-1, 3), "Tree.sample.items": floats(0.0, -1.0, np.nan),
    "Tree.try_update.ids": {**indices(104), **LATE}, "Tree.try_update.td_error": numbers(np.nan, np.inf),
    "Queue.__init__.places": ENTRIES, "Queue.__init__.firsts": ENTRIES,
    "Queue.__init__.ends": in_columns(4, -1, 7, 1000, *HUGE), "Queue.__init__.seen": in_columns(3, -1, 7, 1000, *HUGE),
    "Queue.recency.rate": {f"{bad}": lambda rate, bad=bad: bad for bad in (0.0, -1.0, np.nan, np.inf)},
    "Queue.draw_distinct.u": {"too many": lambda a: np.full(LANES * ROWS + 1, 0.5)},
    "Ring.__init__.columns": lists(LAYOUT)
    | {f"state: {name}": lambda a, spoil=spoil: [*a[:3], spoil(a[3])] for name, spoil in STATE.items()},
    "Ring.__init__.window": attributes(replace, span=SIZES, lookback=SIZES, starts=SIZES, across=[None]),
    "Ring.__init__.num_obs": whole_numbers(-1, 0, 5, 2**62, 2**64),
    "Ring.__init__.steps": whole_numbers(-1, 0, 9, 2**62, 2**64),
    "Ring.__init__.counters": in_columns(14, -1, 9, 1000, 2**62, 2**63 - 1),
    "Ring.write.lanes": {**indices(LANES), **TWICE}, "Ring.cut.lanes": {**indices(LANES), **TWICE},
    "Ring.write.*values": lists(arrays()), "Ring.write.priority": BAD,
    "Ring.*.ids": indices(STORAGE), "Ring.follow.steps": indices(STORAGE),
    "Ring.stacks.newest": indices(STORAGE), "Ring.stacks.frames": whole_numbers(-1, 0, 11, 2**62, 2**64),
    "Ring.*.starts": indices(STORAGE), "Ring.fold*.steps": numbers(-1, 4, 2**31 - 1, -(2**31)),
    "Ring.chunks.steps": numbers(-1, 4, 2**31 - 1, -(2**31)),
    "Ring.chunks.length": whole_numbers(-1, 0, 1, 11, 2**62, 2**64),
    "Ring.windows.discounts": {**TOO_MANY, "one": lambda a: a[:1]},
    "Ring.around.offsets": numbers(-2, ROWS, 2**63 - 1, -(2**63)),
    "Ring.watched.value": whole_numbers(-1, 256, 2**62, 2**64), "Ring.enough_ends.value": whole_numbers(2**64),
    "Gather.__init__.picks": lists(PICKS),
    "Gather.take*.rows": lists(indices(STORAGE + 1)),
    "Gather.unroll.length": whole_numbers(-1, 0, 8, 2**62, 2**63 - 1, 2**64),
    "Gather.unroll.burn_in": whole_numbers(-1, 2, 4, 2**62, 2**63 - 1, 2**64),
    "Gather.transitions.keys": lists(NAMES), "Gather.around.keys": lists(NAMES),
    "Gather.transitions.stacks": lists(STACKS), "Gather.transitions.chunks": lists(CHUNKS),
    "Gather.goals.keys": lists({**NAMES, "a view": lambda a: ("shown",)}), "Gather.goals.outcomes": objects(1),
    "Gather.goals.reward": objects(1),
    "Gather.around.offsets": lists({**arrays(), **numbers(-2, ROWS, 2**63 - 1, -(2**63))}),
    "Gather.around.masks": lists({**NAMES, "none of several": lambda a: None}),
    "Gather.around.targets": {"another kernel": lambda a: native.Gather([], [], False), "a number": lambda a: 1},
    "Gather.sequences.ring": {"across": lambda a: lived(across=True)[0]},
    "Gather.sequences.length": whole_numbers(-1, 0, 9, 2**62, 2**64),
    "Gather.sequences.discounts": TOO_MANY,
    "Gather.sequences.shown": broken_parts(),
    "Gather.sequences.burn_in": whole_numbers(-1, 2, 3, 2**62, 2**64),
    "Gather.sequences.summed": whole_numbers(-2, 0, 1, 3, 2**62, 2**64),
    "Gather.sequences.states": broken_states(),
    "[ae]*d.env_ids": {**indices(LANES), **TWICE}, "[ae]*d.priority": numbers(-1.0, np.nan, np.inf),
}  # fmt: skip
