"""Random buffers and random streams of experience for the property tests.

Every observation encodes its lane and a serial number that never repeats, so an item that mixes lanes, episodes or laps
shows in its bytes. Floating observations hold a NaN now and then, and a zero whose sign a "cut" may flip: two
observations that compare equal and are not the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracle import OracleBuffer, Step, tree_map

import relive

F = relive.Field
SCHEMAS: dict[str, dict[str, Any]] = {
    "flat": {"obs": F((3,), "float32"), "action": F((), "int64")},
    "nested": {
        "obs": {"a": F((2,), "float32"), "b": {"c": F((), "int64"), "d": F((1, 2), "float64")}},
        "action": {"move": F((2,), "float64"), "press": F((), "bool")},
        "log_prob": F((), "float32"),
        "note": {"x": F((2, 2), "uint8"), "y": F((), "int16")},
    },
    "bytes": {"obs": F((2, 3), "uint8"), "action": F((), "int32"), "seen": F((), "bool")},
    "scalar": {"obs": F((), "float64"), "action": F((5,), "float16")},
    # Sizes around those at which a copy may take another path: words, cache lines, and fields kept apart from the rest.
    "wide": {
        "obs": {"image": F((7, 31), "uint8"), "line": F((16,), "float32"), "odd": F((65,), "uint8")},
        "action": F((33,), "float32"),
        "hidden": F((17,), "float64"),
        "word": F((9,), "uint8"),
    },
    "image": {"obs": F((3, 43), "uint8"), "action": F((128,), "int8"), "depth": F((5, 131), "uint8")},
}
GO, TERMINATED, TRUNCATED, BOTH = range(4)
STAY, JUMP, SIGN = range(3)  # the next observation follows, is another one, or flips a zero's sign


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

    def build(self) -> relive.ReplayBuffer:
        """The buffer; its capacity leaves a remainder that no lane uses."""
        return relive.ReplayBuffer(
            relive.Schema(**SCHEMAS[self.schema]),
            capacity=self.rows * self.num_envs + self.num_envs - 1,
            num_envs=self.num_envs,
            item=relive.Transitions(n_step=self.n_step, gamma=self.gamma),
            sampler=relive.Uniform() if self.sampler is None else relive.Prioritized(**self.sampler),
            seed=self.seed,
        )

    def oracle(self) -> OracleBuffer:
        """The model of the same buffer."""
        initial = 1.0 if self.sampler is None else self.sampler["initial"]
        return OracleBuffer(self.num_envs, self.rows, self.n_step, self.gamma, initial)

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
def configs(draw: st.DrawFn) -> Config:
    """Small buffers, so that a few dozen steps make several laps."""
    n_step = draw(st.integers(1, 7))
    return Config(
        schema=draw(st.sampled_from(sorted(SCHEMAS))),
        num_envs=draw(st.integers(1, 4)),
        rows=draw(st.integers(n_step, n_step + 9)),
        n_step=n_step,
        gamma=draw(st.sampled_from([0.9, 0.99, 1.0, 0.0])),
        sampler=draw(samplers),
        seed=draw(st.integers(0, 2**32)),
    )


def encode(spec: Any, name: str, lane: int, serial: int, flip: bool = False) -> Any:
    """A value for every field of `spec` that no other (lane, serial) shares, within what the dtype can tell apart."""
    if isinstance(spec, dict):
        return {key: encode(child, f"{name}.{key}", lane, serial, flip) for key, child in spec.items()}
    size = int(np.prod(spec.shape, dtype=int))
    index = np.arange(size)
    kind = spec.dtype.kind
    if kind == "b":
        value = (serial + lane + index) % 2 == 0
    elif kind == "f":
        value = (lane * 512 + serial % 512) + index * 0.25
        if size > 1:
            value[-1] = -0.0 if flip else 0.0
            if serial % 13 == 5:
                value[0] = np.nan
    else:
        value = serial * 5 + lane * 101 + index * 17 + zlib.crc32(name.encode()) % 97
        value = value % 251 if spec.dtype.itemsize == 1 else value
    return np.asarray(value).reshape(spec.shape).astype(spec.dtype)


def stack(trees: list[Any], axis: int = 0) -> Any:
    """Stack equally nested values."""
    return tree_map(lambda *values: np.stack(values, axis=axis), *trees)


@dataclass
class World:
    """Environments that make up experience: every lane's next observation, and a clock of serial numbers."""

    config: Config
    clock: int = 0
    current: list[tuple[int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec = SCHEMAS[self.config.schema]
        self.extras = [name for name in self.spec if name not in ("obs", "action")]
        self.current = [(self.tick(), False) for _ in range(self.config.num_envs)]

    def tick(self) -> int:
        """A serial number that was never used."""
        self.clock += 1
        return self.clock

    def step(self, lane: int, flag: int, move: int, give_next: bool, priority: float | None) -> tuple[Step, Any, dict]:
        """Let one lane live one step: the model's record, its final observation, and what `add` is told."""
        serial, flipped = self.current[lane]
        after = self.tick()
        obs = encode(self.spec["obs"], "obs", lane, serial, flipped)
        next_obs = encode(self.spec["obs"], "obs", lane, after)
        over = flag != GO
        if over or move == JUMP:
            self.current[lane] = (self.tick(), False)
        else:
            self.current[lane] = (after, move == SIGN)
        told = {
            "obs": obs,
            "action": encode(self.spec["action"], "action", lane, serial),
            "reward": np.float32(((serial * 37 + lane * 5) % 33 - 16) / 8),
            "terminated": np.bool_(flag in (TERMINATED, BOTH)),
            "truncated": np.bool_(flag in (TRUNCATED, BOTH)),
            **{name: encode(self.spec[name], name, lane, serial) for name in self.extras},
        }
        record = Step(
            row=-1,
            obs=obs,
            action=told["action"],
            reward=float(told["reward"]),
            terminated=bool(told["terminated"]),
            truncated=bool(told["truncated"]),
            extras={name: told[name] for name in self.extras},
            priority=priority,
        )
        if give_next:
            told["next_obs"] = next_obs
        if priority is not None:
            told["priority"] = np.float64(priority)
        return record, next_obs if give_next else None, told

    def live(self, oracle: OracleBuffer, lanes: list[int], steps: int, script: Script) -> tuple[dict, np.ndarray]:
        """Let `lanes` live `steps` steps each; returns the arguments `[L, T, ...]` and the ids the model gives."""
        rows, ids = [], np.empty((len(lanes), steps), np.int64)
        for i, lane in enumerate(lanes):
            told_lane = []
            for t in range(steps):
                flag, move, priority = script.at(i * steps + t)
                record, final, told = self.step(lane, flag, move, script.give_next, priority)
                ids[i, t] = oracle.add(lane, record, final)
                told_lane.append(told)
            rows.append(stack(told_lane))
        oracle.refresh()
        return stack(rows), ids


@dataclass
class Script:
    """What happens at each step of a call; short lists repeat."""

    flags: list[int]
    moves: list[int]
    give_next: bool
    priorities: list[float] | None = None

    def at(self, k: int) -> tuple[int, int, float | None]:
        """Flag, move and priority of the k-th step."""
        given = None if self.priorities is None else self.priorities[k % len(self.priorities)]
        return self.flags[k % len(self.flags)], self.moves[k % len(self.moves)], given


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
        moves=st.lists(st.sampled_from([STAY] * 5 + [JUMP, SIGN]), min_size=1, max_size=7),
        give_next=st.booleans(),
        priorities=st.none() | st.lists(raw_priorities, min_size=1, max_size=5) if prioritized else st.none(),
    )


def lane_subsets(num_envs: int) -> st.SearchStrategy[list[int]]:
    """Some of the lanes, in any order."""
    return st.permutations(range(num_envs)).flatmap(
        lambda order: st.integers(1, num_envs).map(lambda count: list(order[:count]))
    )
