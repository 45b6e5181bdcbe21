"""The right calls of `border_calls.py` that make native draws: of their halves, and of both together."""

from __future__ import annotations

from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
from border_tools import LANES, ROWS, Call, guard, lived, native

from relive import Prioritized, Recent
from relive._buffer.tally import Tally
from relive._ring.plans import Stacked
from relive.batch import Batch
from relive.sum_tree import allocate


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


def drawn(*fields: str, sizes: tuple[int, ...] = (40,)) -> Any:
    """Draw by what a call made, and look whether these fields have as many items as were asked for."""
    chooser = choosers()["Queue"][0](replacement=True)

    def then(expansion: Any) -> None:
        for n in sizes:
            batch = sample_with(chooser, expansion)(n)
            if batch is not None and not all(n in values.shape for values in attrgetter("ids", *fields)(batch)):
                raise SystemError("not as many items as were asked for")

    return then


def make_transitions() -> Call:
    gather, arguments = transitions_arguments()
    return Call(gather.transitions, arguments, drawn("action", "nest.state"))


class Outcomes:
    """Computes rewards by looking at a column of rewards."""

    def __call__(self, plan: Any) -> Any:
        return [plan.copies[k] for k in (0, 0, 2)]

    def extras(self, copies: Any) -> Any:
        return copies[0]

    def rewards(self, given: Any, steps: int) -> Any:
        return given


def make_goals() -> Call:
    copies, given = transitions_arguments()
    ring, action, reward = given["ring"], given["chunks"][0][1], given["reward"]
    gather = native.Gather([action, action, reward], [0, 1, 2], False)
    arguments = {
        "ring": ring, "item": copies.transitions(**given), "ratio": 0.5, "n_step": 1, "strategy": 0,
        "keys": [("action",), ("action",), ("reward",)],
        "outcomes": Outcomes(), "reward": lambda achieved, goals, rewards: rewards,
    }  # fmt: skip
    return Call(gather.goals, arguments, drawn("action"))


def make_windows() -> Call:
    ring, arguments = lived()
    gather = native.Gather([layout.array for layout in arguments["columns"][:3]], [0, 1, 2], False)
    given = {
        "ring": ring, "keys": [("obs",), ("nest", "action"), ("reward",)], "repeat": True, "targets": None,
        "offsets": [guard([-1, 0, 3]), guard([1, 2]), guard([0])],
        "masks": [("pad", "obs"), ("pad", "nest"), None],
    }  # fmt: skip
    return Call(gather.around, given, drawn("obs", "nest.action"))


def make_sequences() -> Call:
    ring, arguments = lived()
    obs, action, reward, state = (layout.array for layout in arguments["columns"])
    powers = 0.5 ** np.arange(3.0)
    gather = native.Gather([obs, action, reward], [0, 1, 1], False)
    given = {
        "ring": ring, "length": 3, "time_major": True, "summed": 2, "step_ids": True, "burn_in": 1, "first": True,
        "discounts": guard(powers, np.float32), "gammas": guard(powers, np.float64),
        "shown": [[(("obs",), 0, 5)], [(("nest", "action"), 1, 4)], [(("reward",), 1, 4), (("before",), 0, 3)]],
        "states": [(("nest", "state"), state, 2)],
    }  # fmt: skip
    return Call(gather.sequences, given, drawn("obs", "mask", "reward", "discount", "step_ids", sizes=(40, 4000)))


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
    return Call(function, arguments, drawing())


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
    return Call(native.blending, {**given, "settings": Recent(share=0.2)}, drawing())


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
    return Call(native.sampling, sampling_arguments(), lambda sample: sample(7, beta=0.5))


def make_listed() -> Call:
    ring, _ = lived()
    given = {"ring": ring, "ids": guard(ring.drawable()[:7]), "at": guard(np.zeros(1)), "size": 6}
    return Call(native.listed, given, drawing())


def make_updating() -> Call:
    made = sampling_arguments()
    arguments = {name: made[name] for name in ("lock", "chooser", "counts", "fallback", "joint")}
    return Call(native.updating, arguments, lambda update: update(np.arange(3), np.ones(3)))


def make_joined() -> Call:
    gather, given = transitions_arguments()
    batch = sample_with(choosers()["Queue"][0](replacement=True), gather.transitions(**given))(3)
    if batch is None:
        raise SystemError("no batch to join")
    return Call(native.joined, {"parts": [batch._fields] * 2})


def make_items() -> Call:
    gather, given = transitions_arguments()
    return Call(gather.transitions(**given).items, {"slots": guard([0, 3, 1])})
