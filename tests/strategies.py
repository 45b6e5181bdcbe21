"""Random buffers and random streams of experience for the property tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle_items
from hypothesis import strategies as st
from oracle import OracleBuffer, all_stacks
from synthetic import (
    BOTH,
    GO,
    JUMP,
    MIDWAY,
    OLDER,
    SCHEMAS,
    SIGN,
    STAY,
    TERMINATED,
    TRUNCATED,
    UNRELATED,
    Script,
    World,
    stacks_of,
)

import relive

OVER = ["steps", "steps", "episodes"]


@dataclass(frozen=True)
class Config:
    """One buffer to build."""

    schema: str
    num_envs: int
    rows: int
    n_step: int
    gamma: float
    sampler: dict[str, Any] | None  # arguments of Prioritized; None is Uniform
    seed: int
    sequences: dict[str, Any] | None = None  # arguments of Sequences; None is Transitions
    every: int | None = None  # of the field `state`; None leaves it out
    over: str = "steps"  # of Uniform

    @property
    def spec(self) -> dict[str, Any]:
        """The schema's fields."""
        fields = SCHEMAS[self.schema]
        return fields if self.every is None else {**fields, "state": relive.Field((3,), every=self.every)}

    def build(self) -> relive.ReplayBuffer:
        """The buffer; its capacity leaves a remainder that no lane uses."""
        windows = {"n_step": self.n_step, "gamma": self.gamma}
        return relive.ReplayBuffer(
            relive.Schema(**self.spec),
            capacity=self.rows * self.num_envs + self.num_envs - 1,
            num_envs=self.num_envs,
            item=relive.Sequences(**self.sequences, **windows) if self.sequences else relive.Transitions(**windows),
            sampler=self.choice(),
            seed=self.seed,
        )

    def choice(self) -> Any:
        """The sampler."""
        if self.sampler is not None:
            return relive.Prioritized(**self.sampler)
        return relive.Uniform() if self.over == "steps" else relive.Uniform(over=self.over)

    def oracle(self) -> OracleBuffer:
        """The model of the same buffer."""
        initial = 1.0 if self.sampler is None else self.sampler["initial"]
        item: Any = oracle_items.Transitions(self.n_step, self.gamma)
        if self.sequences:
            choice = self.sequences
            item = oracle_items.Sequences(
                choice["length"] + choice["burn_in"],
                self.n_step,
                self.gamma,
                choice["starts"],
                choice["across_episodes"],
                () if self.every is None else ("state",),
            )
        return OracleBuffer(self.num_envs, self.rows, item, initial, stacks_of(self.spec["obs"]))

    def world(self) -> World:
        """Environments that feed both."""
        return World(self.spec, self.num_envs)

    def mass(self, raw: np.ndarray) -> np.ndarray:
        """What a raw priority weighs in a draw; zero means never, whatever alpha is."""
        alpha = 0.0 if self.sampler is None else self.sampler["alpha"]
        return np.where(raw > 0, np.power(np.where(raw > 0, raw, 1.0), alpha), 0.0)


prioritized = st.fixed_dictionaries(
    {
        "alpha": st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.5]),
        "beta": st.sampled_from([0.0, 0.4, 1.0]),
        "eps": st.sampled_from([0.0, 1e-6, 0.5]),
        "weights": st.sampled_from(["batch", "buffer", "none"]),
        "stratified": st.booleans(),
        "replacement": st.sampled_from([True, True, True, False]),
        "initial": st.sampled_from([1.0, 0.01, 7.0]),
    }
)
samplers = st.integers(0, 3).flatmap(lambda k: prioritized if k else st.none())


@st.composite
def sequences(draw: st.DrawFn) -> tuple[dict[str, Any], int | None]:
    """Arguments of `Sequences`, and how often a state is stored."""
    starts = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
    every = draw(st.sampled_from([None, *(k for k in range(1, starts + 1) if starts % k == 0)]))
    choice = {
        "length": draw(st.integers(1, 5)),
        "burn_in": draw(st.integers(0, 3)),
        "starts": starts,
        "across_episodes": draw(st.booleans()),
        "time_major": draw(st.booleans()),
    }
    return choice, every


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Small buffers, so that a few dozen steps make several laps."""
    n_step = draw(st.integers(1, 7))
    schema = draw(st.sampled_from(sorted(SCHEMAS)))
    choice, every = draw(st.one_of(st.just((None, None)), st.just((None, 1)), sequences()))
    frames = max((stack.k for stack in all_stacks(stacks_of(SCHEMAS[schema]["obs"]))), default=1)
    least = n_step + frames - 1
    if choice is not None:
        least = choice["length"] + choice["burn_in"] + n_step - 1 + max(frames - 1, 1)
    return Config(
        schema=schema,
        num_envs=draw(st.integers(1, 4)),
        rows=draw(st.integers(least, least + 9)),
        n_step=n_step,
        gamma=draw(st.sampled_from([0.9, 0.99, 1.0, 0.0])),
        sampler=draw(samplers),
        seed=draw(st.integers(0, 2**32)),
        sequences=choice,
        every=every,
        over=draw(st.sampled_from(OVER)),
    )


# Other ways to hand over an array: some mean the same, some must be refused, and both back ends must agree on which.
FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "float64": lambda a: a.astype(np.float64),
    "float32": lambda a: a.astype(np.float32),
    "int64": lambda a: np.nan_to_num(a).astype(np.int64),
    "uint8": lambda a: np.nan_to_num(a).astype(np.uint8),
    "bool": lambda a: a.astype(bool),
    "complex": lambda a: a.astype(complex),
    "object": lambda a: a.astype(object),
    "text": lambda a: a.astype("U8"),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "Fortran order": np.asfortranarray,
    "not contiguous": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.flip(np.flip(a, 0).copy(), 0),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "one axis more": lambda a: a[None],
    "no lane axis": lambda a: a[0],
    "a lane more": lambda a: np.concatenate([a, a[:1]]),
    "transposed": lambda a: a.T,
    "huge": lambda a: np.full(a.shape, 1e300),
    "infinite": lambda a: np.full(a.shape, np.inf),
    "large integer": lambda a: np.full(a.shape, 2**40),
    "negative": lambda a: np.full(a.shape, -1),
    "unsigned": lambda a: np.full(a.shape, 2**64 - 1, np.uint64),
    "two": lambda a: np.full(a.shape, 2, np.int8),
    "number": lambda a: 1,
    "float": lambda a: 0.5,
    "word": lambda a: "word",
    "mapping": lambda a: {"a": a},
    "ragged": lambda a: [[1], [1, 2]],
    "nothing": lambda a: None,
    "empty": lambda a: a[:0],
}


def spoil(told: dict[str, Any], name: str, form: str) -> dict[str, Any]:
    """The same call with one field (the first leaf of a nested one) handed over in another form."""

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            first = next(iter(value))
            return {**value, first: change(value[first])}
        return FORMS[form](value)

    return {**told, name: change(told[name])}


raw_priorities = st.sampled_from([0.0, 1e-6, 0.05, 0.3, 1.0, 1.0, 2.5, 40.0, 1e6])


def scripts(prioritized: bool) -> st.SearchStrategy[Script]:
    """Mostly uneventful streams with ends and cuts in them."""
    return st.builds(
        Script,
        flags=st.lists(st.sampled_from([GO] * 6 + [TERMINATED, TRUNCATED, BOTH]), min_size=1, max_size=12),
        moves=st.lists(st.sampled_from([STAY] * 8 + [JUMP, SIGN, MIDWAY, OLDER, UNRELATED]), min_size=1, max_size=7),
        give_next=st.booleans(),
        priorities=st.none() | st.lists(raw_priorities, min_size=1, max_size=5) if prioritized else st.none(),
    )


def lane_subsets(num_envs: int) -> st.SearchStrategy[list[int]]:
    """Some of the lanes, in any order."""
    return st.permutations(range(num_envs)).flatmap(
        lambda order: st.integers(1, num_envs).map(lambda count: list(order[:count]))
    )
