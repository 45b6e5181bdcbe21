"""Random but repeatable experience for the contract suites: the same calls for every buffer and for the oracle."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _kernels
from .._types import Array, Int64
from ..batch import Batch
from ..buffer import ReplayBuffer
from ..errors import ReliveWarning
from .agreement import check, check_bytes
from .frames import leaves, tree_map
from .oracle import Anchor, ItemModel, OracleBuffer
from .synthetic import BOTH, GO, JUMP, STAY, TERMINATED, TRUNCATED, Script, SyntheticEnvs

BACK_ENDS = ["numpy", *(["native"] if importlib.util.find_spec("relive._native") else [])]


class Contract:
    """Promises, as methods whose names begin with `test_`: pytest collects them from a subclass, or `run_all` does.

    Notices about the contract's own experience, in which much ends and little is stored, are not shown.
    """

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, _quiet(method))

    @classmethod
    def run_all(cls) -> int:
        """Run every test, each on an instance of its own; return how many there are."""
        names = [name for name in dir(cls) if name.startswith("test_")]
        for name in names:
            getattr(cls(), name)()
        return len(names)


def _quiet(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def run(*arguments: Any, **named: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReliveWarning)
            method(*arguments, **named)

    return run


class Numbers:
    """A generator that gives one number only, and notes how often it was asked."""

    def __init__(self, number: float) -> None:
        self.number = number
        self.calls: list[Any] = []

    def random(self, size: Any) -> Array:
        """As many of them as asked for."""
        self.calls.append(size)
        return np.full(size, self.number)


@dataclass(frozen=True)
class Call:
    """One call that changes a buffer; `ids` are those that the oracle gave to the steps."""

    name: str
    arguments: dict[str, Any]
    ids: Int64


@dataclass(frozen=True)
class Unknown:
    """An item without a model: the oracle then gives ids to steps, and knows no item."""

    starts: int = 1
    older: int = 0

    def expand(self, anchor: Anchor) -> None:
        """None: nothing is known about the item."""


def oracle_of(buffer: ReplayBuffer, item: ItemModel | None) -> OracleBuffer:
    """An empty model of an empty buffer."""
    stacks = SyntheticEnvs(buffer.schema, 1).stacks
    return OracleBuffer(buffer.num_envs, buffer.capacity // buffer.num_envs, item or Unknown(), stacks=stacks)


def life(buffer: ReplayBuffer, oracle: OracleBuffer, calls: int, seed: int = 0, give: bool = False) -> Iterator[Call]:
    """Calls for `buffer` (and its twins): some lanes or all, one step or several laps, ends of all kinds, cuts.

    `give`: also raw priorities, zero among them.
    """
    rng = np.random.default_rng(seed)
    envs, rows = SyntheticEnvs(buffer.schema, buffer.num_envs), oracle.rows_per_lane
    for number in range(calls):
        # Lanes advance at different speeds: the first is left out most often.
        lanes = [lane for lane in range(buffer.num_envs) if rng.random() < 0.4 + lane / buffer.num_envs] or [0]
        if number % 9 == 8:
            oracle.cut(lanes)
            for lane in lanes:
                envs.current[lane] = envs.begin(lane)
            yield Call("cut", {"env_ids": lanes}, np.empty(0, np.int64))
            continue
        lanes = list(range(buffer.num_envs)) if rng.random() < 0.4 else lanes[::-1]
        steps = int(rng.choice([1, 1, 1, 2, 5, 2 * rows + 3], p=[0.2, 0.2, 0.2, 0.2, 0.15, 0.05]))
        script = Script(
            flags=rng.choice([GO, TERMINATED, TRUNCATED, BOTH], 17, p=[0.82, 0.08, 0.08, 0.02]).tolist(),
            moves=rng.choice([STAY, JUMP], 19, p=[0.95, 0.05]).tolist(),
            give_next=bool(rng.random() < 0.7),
            priorities=rng.choice([0.0, 0.5, 1.0, 20.0], 5).tolist() if give and rng.random() < 0.3 else None,
        )
        arguments, ids = envs.rollout(oracle, lanes, steps, script)
        if steps == 1:
            arguments, ids = tree_map(lambda array: array[:, 0], arguments), ids[:, 0]
        if lanes != list(range(buffer.num_envs)):
            arguments["env_ids"] = lanes
        yield Call("add" if steps == 1 else "extend", arguments, ids)


@contextmanager
def back_end(name: str) -> Iterator[None]:
    """Give what is built inside the block the named kernels."""
    with _kernels.use(name):
        yield


def feed(buffer: ReplayBuffer, call: Call) -> None:
    """Make one call; the ids are the oracle's."""
    ids = getattr(buffer, call.name)(**call.arguments)
    if ids is not None:
        np.testing.assert_array_equal(ids, call.ids, err_msg=f"ids of `{call.name}`")


def feed_step_by_step(buffer: ReplayBuffer, call: Call) -> None:
    """The same by `add` alone."""
    if call.name != "extend":
        return feed(buffer, call)
    lanes = {name: call.arguments[name] for name in ("env_ids",) if name in call.arguments}
    steps = {name: value for name, value in call.arguments.items() if name not in lanes}
    for t in range(call.ids.shape[1]):
        arguments = tree_map(lambda array, t=t: array[:, t], steps)
        feed(buffer, Call("add", {**arguments, **lanes}, call.ids[:, t]))


def refuses(error: type[Exception], method: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """The call raises `error`."""
    try:
        method(*arguments, **named)
    except error:
        return
    raise AssertionError(f"`{method.__name__}` was not refused with `{error.__name__}`")


def assert_same_batch(ours: Batch, theirs: Batch, without: tuple[str, ...] = (), rtol: float = 0.0) -> None:
    """Every field to the byte; what kernels compute, to `rtol`."""
    check(set(ours) == set(theirs), f"fields {sorted(ours)}, not {sorted(theirs)}")
    for name in set(ours) - set(without):
        for one, other in zip(leaves(ours[name]), leaves(theirs[name]), strict=True):
            if rtol and name in ("reward", "discount", "weights"):
                np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol, err_msg=name)
            else:
                check_bytes(one, other, name)
