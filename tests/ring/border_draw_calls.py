"""The right calls of `border_calls.py` that make native draws: of their halves, and of both together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import spoilers
from border_tools import LANES, ROWS, Call, guard, lived, native

from relive import Prioritized, Recent
from relive._buffer.tally import Tally
from relive._ring.plans import Stacked
from relive.batch import Batch
from relive.sum_tree import allocate

SEEN = spoilers.writable(spoilers.integers(-1, 2**62, 2**63 - 1, -(2**63)))


def otherwise(*arguments: Any, **named: Any) -> None:
    """What a native call leaves to Python."""


def sample_with(chooser: Any, expansion: Any) -> Any:
    """The call `sample` of these halves."""
    made = sampling_arguments() | {"chooser": chooser, "expansion": expansion}
    return native.sampling(**made)


def transitions_arguments() -> tuple[Any, dict[str, Any]]:
    ring, arguments = lived()
    columns = [layout.array for layout in arguments["columns"][1:3]]
    powers = 0.5 ** np.arange(3.0)
    frames = native.Gather([columns[0]] * 2, [0, 1], False)
    return native.Gather(columns, [0, 1], False), {
        "ring": ring,
        "discounts": guard(powers, np.float32),
        "keys": [("action",), ("nest", "state")],
        "stacks": [Stacked(frames, ("shown",), ("next_obs",), 2, True, False)],
        "reward": columns[1],
        "gammas": guard(powers, np.float64),
        "chunks": [(("nest", "chunk"), columns[0])],
    }


def broken_stacks() -> dict[str, Any]:
    """Stacks that are none: each has one other attribute."""
    others = {
        "gather": (None, native.Gather([], [], False)),
        "obs": ((), "text", None),
        "next_obs": ((), "text", None),
        "frames": (0, -1, ROWS + 2, 2**63, None, 2.5),
        "repeat": (None, 2),
        "behind": (None, "yes"),
    }
    return {
        f"{name} {index}": lambda stack, name=name, value=value: stack._replace(**{name: value})
        for name, values in others.items()
        for index, value in enumerate(values)
    }


def make_transitions() -> Call:
    gather, arguments = transitions_arguments()
    spoilt = {
        "keys": spoilers.lists({"text": lambda a: "1", "no names": lambda a: (), "a number": lambda a: 1}),
        "stacks": spoilers.lists(broken_stacks()),
        "chunks": spoilers.lists(
            {
                "a number": lambda a: 1,
                "no array": lambda a: (("chunk",), 1),
                "no names": lambda a: ((), a[0][1]),
                "text": lambda a: ("chunk", a[0][1]),
                "another ring's": lambda a: (("chunk",), np.zeros(3)),
            }
        ),
    }
    chooser = choosers()["Queue"][0](replacement=True)

    def then(expansion: Any) -> None:
        batch = sample_with(chooser, expansion)(40)
        if batch is not None and not all(len(values) == 40 for values in (batch.ids, batch.action, batch.nest.state)):
            raise SystemError("not as many items as were asked for")

    return Call(gather.transitions, arguments, spoilt, then)


def make_goals() -> Call:
    gather, given = transitions_arguments()
    arguments = {
        "ring": given["ring"],
        "item": gather.transitions(**given),
        "keys": [("action",), ("nest", "state"), ("reward",)],
        "ratio": 0.5,
        "n_step": 2,
        "strategy": 0,
        "outcomes": lambda plan: [plan.copies[k][plan.ages == 0] for k in (0, 1, 1)],
    }
    keys = {
        "text": lambda a: "1",
        "no names": lambda a: (),
        "a number": lambda a: 1,
        "a view": lambda a: ("shown",),
    }
    spoilt = {
        "keys": spoilers.lists(keys),
        "n_step": spoilers.whole_numbers(-1, 0, ROWS + 1, 2**62, 2**64),
        "strategy": spoilers.whole_numbers(-1, 3, 2**62, 2**64),
        "outcomes": spoilers.objects(1),
    }
    chooser = choosers()["Queue"][0](replacement=True)

    def then(expansion: Any) -> None:
        batch = sample_with(chooser, expansion)(40)
        if batch is not None and not len(batch.ids) == len(batch.action) == 40:
            raise SystemError("not as many items as were asked for")

    return Call(gather.goals, arguments, spoilt, then)


def make_windows() -> Call:
    ring, arguments = lived()
    obs, action, reward, _ = (layout.array for layout in arguments["columns"])
    gather = native.Gather([obs, action, reward], [0, 1, 2], False)
    given = {
        "ring": ring,
        "keys": [("obs",), ("nest", "action"), ("reward",)],
        "offsets": [guard([-1, 0, 3]), guard([1, 2]), guard([0])],
        "masks": [("pad", "obs"), ("pad", "nest"), None],
        "repeat": True,
        "targets": None,
    }
    names = {"text": lambda a: "1", "no names": lambda a: (), "a number": lambda a: 1}
    spoilt = {
        "keys": spoilers.lists(names),
        "offsets": spoilers.lists({**spoilers.integers(-2, ROWS, 2**63 - 1, -(2**63)), **spoilers.arrays()}),
        "masks": spoilers.lists({**names, "none of several": lambda a: None}),
        "targets": {"another kernel": lambda a: gather, "a number": lambda a: 1},
    }
    chooser = choosers()["Queue"][0](replacement=True)

    def then(expansion: Any) -> None:
        batch = sample_with(chooser, expansion)(40)
        if batch is not None and not all(len(values) == 40 for values in (batch.ids, batch.obs, batch.nest.action)):
            raise SystemError("not as many items as were asked for")

    return Call(gather.around, given, spoilt, then)


def make_sequences() -> Call:
    ring, arguments = lived()
    obs, action, reward, state = (layout.array for layout in arguments["columns"])
    powers = 0.5 ** np.arange(3.0)
    gather = native.Gather([obs, action, reward], [0, 1, 1], False)
    given = {
        "ring": ring,
        "length": 3,
        "discounts": guard(powers, np.float32),
        "time_major": True,
        "shown": [[(("obs",), 0, 5)], [(("nest", "action"), 1, 4)], [(("reward",), 1, 4), (("before",), 0, 3)]],
        "summed": 2,
        "gammas": guard(powers, np.float64),
        "states": [(("nest", "state"), state, 2)],
        "step_ids": True,
        "burn_in": 1,
        "first": True,
    }
    keys = {"text": "1", "no names": (), "a number": 1}
    limits = (-1, 6, 2**62, 2**64, None, "1")

    def second(*part: Any) -> Any:
        return lambda shown: [shown[0], [part], shown[2]]

    spoilt = {
        "ring": {"across": lambda a: lived(across=True)[0]},
        "length": spoilers.whole_numbers(-1, 0, 9, 2**62, 2**64),
        "discounts": {**spoilers.numbers(), "too many": lambda a: np.ones(ROWS + 2, np.float32)},

        "shown": {
            **spoilers.lists({"text": lambda a: "1", "a number": lambda a: 1, "a part": lambda a: a[0]}),
            **{f"keys: {name}": second(value, 0, 1) for name, value in keys.items()},
            **{f"begin {value}": second(("a",), value, 4) for value in limits},
            **{f"end {value}": second(("a",), 0, value) for value in limits},
        },

        "burn_in": spoilers.whole_numbers(-1, 2, 3, 2**62, 2**64),

        "summed": spoilers.whole_numbers(-2, 0, 1, 3, 2**62, 2**64),

        "states": {
            **spoilers.lists({"text": lambda a: "1", "a number": lambda a: 1}),
            **{f"keys: {name}": lambda a, value=value: [(value, *a[0][1:])] for name, value in keys.items()},
            **{f"array: {name}": lambda a, spoil=spoil: [(a[0][0], spoil(a[0][1]), 2)]
               for name, spoil in spoilers.arrays().items()},
            **{f"every {value}": lambda a, value=value: [(*a[0][:2], value)] for value in (-1, 0, 1, 3, 2**64, None)},
        },
    }  # fmt: skip
    chooser = choosers()["Queue"][0](replacement=True)

    def then(expansion: Any) -> None:
        for n in (40, 4000):
            batch = sample_with(chooser, expansion)(n)
            if batch is not None and not all(
                batch[name].size for name in ("obs", "mask", "reward", "discount", "step_ids")
            ):
                raise SystemError("a field without values")

    return Call(gather.sequences, given, spoilt, then)


def choosers() -> dict[str, tuple[Any, dict[str, Any]]]:
    """What a kernel's `chooser` is called with."""
    ring, _ = lived()
    tree = native.Tree(*allocate(LANES * ROWS))
    places = np.zeros((LANES, ROWS), np.int32)
    queue = native.Queue(ring, places, None, np.zeros((LANES, 4), np.int64), np.zeros((LANES, 3), np.int64))
    common = {"ring": ring, "seen": guard(np.zeros((LANES, 3))), "draws": guard(np.zeros(2), np.float64)}
    law = queue.recency(0.5, False)
    of_law = {"draws": guard(np.zeros(2), np.float64), "settings": Recent(share=0.2)}
    return {
        "Recency": (law.chooser, of_law),
        "Tree": (tree.chooser, {**common, "settings": Prioritized()}),
        "Queue": (queue.chooser, {"replacement": True}),
    }


def make_chooser(kind: str) -> Call:
    function, arguments = choosers()[kind]
    spoilt = {"seen": SEEN, "settings": spoilers.objects(1)}
    return Call(function, arguments, {name: each for name, each in spoilt.items() if name in arguments}, drawing())


def drawing() -> Any:
    """Draw by a chooser."""
    gather, given = transitions_arguments()
    expansion = gather.transitions(**given)

    def then(chooser: Any) -> None:
        batch = sample_with(chooser, expansion)(6)
        if batch is not None and not (batch.ids >= 0).all():
            raise SystemError("an id that there is not")

    return then


def make_blending() -> Call:
    members = [function(**arguments) for function, arguments in choosers().values()]
    shares, draws = guard([0.2, 0.5, 0.3], np.float64), guard(np.zeros(2), np.float64)
    given = {"members": members, "shares": shares, "shuffle": True, "leader": 1, "draws": draws}
    spoilt = {
        "settings": spoilers.objects(1),
        "leader": spoilers.whole_numbers(-2, 3, 2**62),
        "shares": spoilers.numbers(-0.1, 0.0, np.nan, np.inf),
    }
    return Call(native.blending, {**given, "settings": Recent(share=0.2)}, spoilt, drawing())


def sampling_arguments() -> dict[str, Any]:
    gather, given = transitions_arguments()
    choose, arguments = choosers()["Tree"]
    return {
        "lock": native.Lock(),
        "chooser": choose(**arguments),
        "expansion": gather.transitions(**given),
        "tally": Tally(np.random.default_rng(0)),
        "counts": guard(np.zeros(3)),
        "notices": guard(np.zeros(2)),
        "first_notice": 1000,
        "most": 1000,
        "batch": Batch,
        "fallback": otherwise,
        "joint": (given["ring"], guard(np.zeros(8)), SimpleNamespace(forked=False), 100),
        "redraw": otherwise,
    }


def make_sampling() -> Call:
    ring, _ = lived()
    spoilt = {"tally": spoilers.objects(ring)} | {
        name: spoilers.whole_numbers(2**64) for name in ("first_notice", "most")
    }
    return Call(native.sampling, sampling_arguments(), spoilt, lambda sample: sample(7, beta=0.5))


def make_listed() -> Call:
    ring, _ = lived()
    given = {"ring": ring, "ids": guard(ring.drawable()[:7]), "at": guard(np.zeros(1)), "size": 6}
    spoilt = {
        "ids": spoilers.integers(-1, LANES * ROWS, 2**62, 2**63 - 1, -(2**63)),
        "at": {str(place): lambda a, place=place: a + place for place in (-1, 4, 7, 8, 2**62)},
        "size": spoilers.whole_numbers(-1, 0, 2**64),
    }
    return Call(native.listed, given, spoilt, drawing())


def make_updating() -> Call:
    made = sampling_arguments()
    arguments = {name: made[name] for name in ("lock", "chooser", "counts", "fallback", "joint")}
    return Call(native.updating, arguments, {}, lambda update: update(np.arange(3), np.ones(3)))


def make_joined() -> Call:
    gather, given = transitions_arguments()
    batch = sample_with(choosers()["Queue"][0](replacement=True), gather.transitions(**given))(3)
    if batch is None:
        raise SystemError("no batch to join")
    return Call(native.joined, {"parts": [batch._fields] * 2}, {"parts": spoilers.lists({"a dict": lambda a: {}})})


def make_items() -> Call:
    gather, given = transitions_arguments()
    spoilt = spoilers.integers(-1, LANES * ROWS, 2**62, 2**63 - 1, -(2**63))
    return Call(gather.transitions(**given).items, {"slots": guard([0, 3, 1])}, {"slots": spoilt})
