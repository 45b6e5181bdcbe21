"""What the contract suites share: random but repeatable experience, and running without pytest."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base.nests import mapped
from .._base.types import Array, Int64
from ..buffer import ReplayBuffer
from ..errors import ReliveWarning
from ..schema import Schema
from .agreement import check, check_bytes
from .nests import leaves
from .oracle import OracleBuffer
from .synthetic import BOTH, GO, JUMP, STAY, TERMINATED, TRUNCATED, Script, SyntheticEnvs

BACK_ENDS = ["numpy", *(["native"] if importlib.util.find_spec("relive._ring._native") else [])]


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
        """Return as many of them as asked for."""
        self.calls.append(size)
        return np.full(size, self.number)


@dataclass(frozen=True, eq=False)
class Call:
    """A call that changes a buffer: steps `[L', T, ...]` of some lanes, or, without steps, a cut of these lanes."""

    lanes: list[int]
    steps: dict[str, Any] | None


def life(buffer: ReplayBuffer, calls: int, seed: int = 0) -> tuple[Call, ...]:
    """Make calls for `buffer` and its twins: some lanes or all, one step or several laps, ends of all kinds, cuts.

    Where the sampler knows priorities, some steps are given one, zero among them.
    """
    lap = buffer.capacity // buffer.num_envs
    made, further = _life(buffer.schema, buffer.num_envs, lap, buffer.sampler.prioritizes, seed)
    made += itertools.islice(further, max(calls - len(made), 0))
    return tuple(made[:calls])


@functools.lru_cache(maxsize=32)  # every buffer of a contract has the same
def _life(schema: Schema, num_envs: int, lap: int, gives: bool, seed: int) -> tuple[list[Call], Iterator[Call]]:
    return [], _calls(schema, num_envs, lap, gives, seed)


def _calls(schema: Schema, num_envs: int, lap: int, gives: bool, seed: int) -> Iterator[Call]:
    rng, envs = np.random.default_rng(seed), SyntheticEnvs(schema, num_envs)
    for number in itertools.count():
        # Lanes advance at different speeds: the first is left out most often.
        lanes = [lane for lane in range(num_envs) if rng.random() < 0.4 + lane / num_envs] or [0]
        if number % 9 == 8:
            envs.reset(lanes)
            yield Call(lanes, None)
            continue
        lanes = list(range(num_envs)) if rng.random() < 0.4 else lanes[::-1]
        steps = int(rng.choice([1, 1, 1, 2, 5, 2 * lap + 3], p=[0.2, 0.2, 0.2, 0.2, 0.15, 0.05]))
        script = Script(
            flags=rng.choice([GO, TERMINATED, TRUNCATED, BOTH], 17, p=[0.82, 0.08, 0.08, 0.02]).tolist(),
            moves=rng.choice([STAY, JUMP], 19, p=[0.95, 0.05]).tolist(),
            give_next=bool(rng.random() < 0.7),
            priorities=rng.choice([0.0, 0.5, 1.0, 20.0], 5).tolist() if gives and rng.random() < 0.3 else None,
        )
        rollout = envs.rollout(lanes, steps, script)
        for array in leaves(rollout):
            array.flags.writeable = False  # all buffers share it
        yield Call(lanes, rollout)


def assert_full(buffer: ReplayBuffer) -> None:
    """Check that a full buffer holds as many steps as its capacity says, whatever its episodes: these have 16 steps."""
    for call in _laps(buffer.schema, buffer.num_envs, buffer.capacity // buffer.num_envs):
        feed(buffer, call)
    counts = (len(buffer), buffer.stats().size, buffer.stats().capacity)
    check(counts == (buffer.capacity,) * 3, f"(len, size, capacity) are {counts}, not {buffer.capacity} each")


@functools.lru_cache(maxsize=32)
def _laps(schema: Schema, num_envs: int, steps: int) -> list[Call]:
    lanes, envs = list(range(num_envs)), SyntheticEnvs(schema, num_envs)
    script = Script([GO] * 15 + [TERMINATED], [STAY], True)
    return [Call(lanes, envs.rollout(lanes, count, script)) for count in (1, steps // 2, 2 * steps + 20, 1, 7)]


def feed(buffer: ReplayBuffer, call: Call, oracle: OracleBuffer | None = None) -> Int64:
    """Make one call, by `add` where it is one step; the ids, `[L', T]`, are the oracle's."""
    ids: Int64 = np.empty((len(call.lanes), 0), np.int64)
    lanes: dict[str, Any] = {} if call.lanes == list(range(buffer.num_envs)) else {"env_ids": call.lanes}
    if call.steps is None:
        buffer.cut(**lanes)
    elif call.steps["reward"].shape[1] == 1:
        ids = buffer.add(**mapped(lambda array: array[:, 0], call.steps), **lanes)[:, None]
    else:
        ids = buffer.extend(**call.steps, **lanes)
    if oracle is not None:
        check_bytes(ids, told(oracle, call), "ids")
    return ids


def told(oracle: OracleBuffer, call: Call) -> Int64:
    """Tell an oracle of a call; return the ids, `[L', T]`."""
    if call.steps is None:
        oracle.cut(call.lanes)
        return np.empty((len(call.lanes), 0), np.int64)
    return oracle.extend(call.lanes, call.steps)


def feed_step_by_step(buffer: ReplayBuffer, call: Call) -> None:
    """Feed the steps of a call by `add` alone."""
    if call.steps is None:
        feed(buffer, call)
        return
    for t in range(call.steps["reward"].shape[1]):
        feed(buffer, Call(call.lanes, mapped(lambda array, t=t: array[:, t : t + 1], call.steps)))
