"""Traces: three short episodes, and every item that a pipeline stores of them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.frozen import Frozen

from ._examine import admit, generators_kept
from ._items import TWICE, faults_of, holes, targets_of
from ._pipeline import GAMMA, Patient, Pipeline, PlainItem
from ._world import Course, Place, World

ENDS = ("truncated", "terminated")
LENGTHS = (4, 3, 5)
_CALLS = 28  # the windows of the third episode are complete, whatever the mode


class TracedItem(Frozen):
    """One stored item, and what it should be.

    Attributes:
        obs: The observation where it starts, `100 * episode + step`.
        reward: Its (n-step) reward.
        discount: The factor of `V(next_obs)`.
        next_obs: The observation that the learner bootstraps from.
        faults: The probes of table A that it fails.
        right: `(reward, discount, next_obs)` of the right target; None where no item may start.

    >>> TracedItem(3, 4.0, 0.5, 100, ("wrong next_obs bootstrapped",), (4.0, 0.5, 4.0)).right
    (4.0, 0.5, 4.0)
    """

    obs: float
    reward: float
    discount: float
    next_obs: float
    faults: tuple[str, ...]
    right: tuple[float, float, float] | None

    def to_list(self) -> list[Any]:
        """Return `[obs, reward, discount, next_obs]`, and where it is wrong `[..., faults, right]`."""
        values = [_plain(value) for value in (self.obs, self.reward, self.discount, self.next_obs)]
        right = [_plain(value) for value in self.right] if self.right else None
        return [*values, list(self.faults), right] if self.faults else values


class TracedState(Frozen):
    """The items of a pipeline in one autoreset mode, for one n, if all episodes end in one way.

    Attributes:
        autoreset_mode: `"next_step"`, `"same_step"` or `"disabled"`.
        n_step: Steps of the n-step target.
        end: `"truncated"` or `"terminated"`: how each of the episodes ends.
        items: The items that start in the three episodes, in the order of their observations.
        missing: Observations at which an item should start.

    >>> TracedState("disabled", 1, "truncated", (), (0, 1)).wrong
    0
    """

    autoreset_mode: str
    n_step: int
    end: str
    items: tuple[TracedItem, ...]
    missing: tuple[int, ...]

    @property
    def wrong(self) -> int:
        """The number of items that are wrong."""
        return sum(bool(item.faults) for item in self.items)


class Trace(Frozen):
    """Three short episodes as a pipeline stores them, in every state that was asked for.

    Attributes:
        pipeline: Its name.
        steps: `(obs, reward, next_obs)` of every step that the environment took in the three episodes.
        states: One for each autoreset mode, n and end.

    >>> Trace("mine", ((0, 1, 1),), ()).to_dict()
    {'pipeline': 'mine', 'gamma': 0.5, 'steps': [[0, 1, 1]], 'states': []}
    """

    pipeline: str
    steps: tuple[tuple[int, int, int], ...]
    states: tuple[TracedState, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: `pipeline`, `gamma`, `steps` and `states`."""
        states = [
            {
                "autoreset_mode": state.autoreset_mode,
                "n_step": state.n_step,
                "end": state.end,
                "items": [item.to_list() for item in state.items],
                "missing": list(state.missing),
            }
            for state in self.states
        ]
        return {
            "pipeline": self.pipeline,
            "gamma": GAMMA,
            "steps": [list(step) for step in self.steps],
            "states": states,
        }


def trace(
    pipeline: Pipeline | Callable[[], Pipeline],
    *,
    n_steps: int | Iterable[int] = (1, 3, 5),
    modes: AutoresetMode | str | Iterable[AutoresetMode | str] | None = None,
    name: str | None = None,
) -> Trace:
    """Run a pipeline in one environment and return every item of its first three episodes beside the right one.

    The episodes have 4, 3 and 5 steps. In one run all of them are truncated, in another all terminate.

    Args:
        pipeline: What to run, or a function without arguments that makes it.
        n_steps: Steps of the targets, one or several.
        modes: Gymnasium's autoreset modes or their names, one or several; None: all that the pipeline knows.
        name: What to call it; None: the name of its class or function.

    Returns:
        The trace. The boundary explorer in the documentation shows such traces.

    Raises:
        ArgumentError: The pipeline is none, raises when it is run, or knows none of the modes; an argument outside its
            limits.

    >>> from relive.doctor import pipelines
    >>> state = trace(pipelines.named("relive"), n_steps=3, modes="same_step").states[0]
    >>> state.end, len(state.items), state.wrong
    ('truncated', 12, 0)
    >>> state.items[2]
    TracedItem(obs=2.0, reward=5.0, discount=0.25, next_obs=4.0, faults=(), right=(5.0, 0.25, 4.0))
    """
    patient, steps, known, _ = admit(pipeline, n_steps, modes, name, "trace")
    patient.lanes = 1
    with generators_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trace shows what is wrong
        states = tuple(_state(patient, mode, n, end) for mode in known for n in steps for end in ENDS)
    taken = [Place(0, episode, t) for episode, length in enumerate(LENGTHS) for t in range(length)]
    return Trace(patient.name, tuple((at.code, int(at.reward), at.later(1).code) for at in taken), states)


def _state(patient: Patient, mode: AutoresetMode, n_step: int, end: str) -> TracedState:
    patient.course = Course(LENGTHS, terminates=end == "terminated", alone=True)
    patient.renew()
    patient.run(_CALLS, n_step, mode)
    world, stored = patient.world, patient.items()
    pairs = [(item, world.place(item.obs)) for item in stored]
    often: Counter[Place | None] = Counter(place for _, place in pairs if place and place.t < place.length)
    # A number that no environment has returned belongs to no episode; it is shown.
    shown = [(item, place) for item, place in pairs if place is None or place.episode < len(LENGTHS)]
    shown.sort(key=lambda pair: pair[0][:4])
    items = tuple(_traced(item, place, world, n_step, often[place]) for item, place in shown)
    steps = [place for place in often if place]
    missing = [place.code for place in holes(steps, world, n_step) if place.episode < len(LENGTHS)]
    return TracedState(mode.name.lower(), n_step, end, items, tuple(missing))


def _traced(item: PlainItem, place: Place | None, world: World, n_step: int, times: int) -> TracedItem:
    faults = [fault.probe for fault in faults_of(item, world, n_step)] + [TWICE] * (times > 1)
    right = None
    if place is not None and place.t < min(place.length, world.lived(place)):
        target = targets_of(place, world, n_step)[0]
        right = (target.reward, target.bootstrap, target.next_obs)
    return TracedItem(*item[:4], tuple(faults), right)


def _plain(value: float) -> float | None:
    """Return a number for JSON: whole ones without a point, float32's noise rounded off; None if it is not finite."""
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) else round(value, 6)
