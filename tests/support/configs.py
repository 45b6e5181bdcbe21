"""Random buffers for the property tests: a schema, an item, a sampler, and the oracle of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import storages
from hypothesis import strategies as st
from wild_envs import SCHEMAS, WildEnvs

import relive
from relive._base.nests import mapped
from relive._ring.lanes import rows_of
from relive.testing import OracleBuffer, SequencesModel, TransitionsModel, WindowsModel
from relive.testing.streams import most_frames, stacks_of

OVER = ["steps", "steps", "episodes"]
STORAGES = ["ram", "ram", "shared", "mapped"]


@dataclass(frozen=True)
class Config:
    """One buffer to build."""

    schema: str
    num_envs: int
    steps: int  # that a lane keeps
    n_step: int
    gamma: float
    sampler: dict[str, Any] | None  # arguments of Prioritized; None is Uniform
    seed: int
    sequences: dict[str, Any] | None = None  # arguments of Sequences; None is Transitions
    every: int | None = None  # of the field `state`; None leaves it out
    over: str = "steps"  # of Uniform
    storage: str = "ram"  # whatever it is, nothing else changes
    boundaries: float = 0.0
    chunk: bool = False  # of Transitions
    windows: dict[str, Any] | None = None  # arguments of Windows
    writable: bool = False  # all fields that can be
    compressed: bool = False  # in saves, likewise

    @property
    def rows(self) -> int:
        """Rows of a lane."""
        return rows_of(self.steps, self.boundaries)

    @property
    def fields(self) -> relive.Schema:
        """The schema, with the state that sequences may start from."""
        schema = SCHEMAS[self.schema]
        tree = {"reward": relive.Field(), **schema.tree}
        if self.every is not None:
            tree["state"] = relive.Field((3,), every=self.every)
        if self.writable:
            changing = {name: mapped(_writable, nest) for name, nest in tree.items() if name not in ("obs", "action")}
            tree |= changing
        if self.compressed:
            tree = mapped(_compressed, tree)
        return relive.Schema(**tree)

    @property
    def whole(self) -> tuple[str, ...] | None:
        """Fields without a time axis in a time-major batch."""
        return ("state",) if self.sequences and self.sequences["time_major"] else None

    def build(self) -> relive.ReplayBuffer:
        """Build the buffer; its capacity leaves a remainder that no lane uses."""
        targets: dict[str, Any] = {"n_step": self.n_step, "gamma": self.gamma}
        item: Any = relive.Transitions(**targets, chunk=self.chunk)
        if self.sequences:
            item = relive.Sequences(**self.sequences, **targets)
        if self.windows:
            item = relive.Windows(**targets | self.windows)
        return relive.ReplayBuffer(
            self.fields,
            capacity=self.steps * self.num_envs + self.num_envs - 1,
            num_envs=self.num_envs,
            item=item,
            sampler=self.choice(),
            storage=storages.new(self.storage),
            seed=self.seed,
            boundaries=self.boundaries,
        )

    def choice(self) -> Any:
        """Return the sampler."""
        if self.sampler is not None:
            return relive.Prioritized(**self.sampler)
        return relive.Uniform() if self.over == "steps" else relive.Uniform(over=self.over)

    def oracle(self) -> OracleBuffer:
        """Build the model of the same buffer."""
        initial = 1.0 if self.sampler is None else self.sampler["initial"]
        item: Any = TransitionsModel(self.n_step, self.gamma, chunk=self.chunk)
        if self.sequences:
            choice = self.sequences
            item = SequencesModel(
                choice["length"] + choice["burn_in"],
                self.n_step,
                self.gamma,
                0 if choice["starts"] == "episodes" else choice["starts"],
                choice["across_episodes"],
                () if self.every is None else ("state",),
                burn_in=0 if choice["across_episodes"] else choice["burn_in"],
                every=self.every or 1,
            )
        stacks = stacks_of(self.fields.tree["obs"])
        if self.windows:
            choice = {"n_step": self.n_step, **self.windows}
            offsets = {(name,): tuple(choice[name]) for name in ("obs", "action") if name in choice}
            reach, older = _reach(self.windows), most_frames(stacks) - 1
            lookback = max(reach, older - min(0, *choice.get("obs", (0,)), 0))
            item = WindowsModel(offsets, choice["pad"] == "repeat", choice["n_step"], self.gamma, lookback)
        return OracleBuffer(self.num_envs, self.rows, item, self.steps, initial, stacks)

    def envs(self) -> WildEnvs:
        """Build environments that feed both."""
        return WildEnvs(self.fields, self.num_envs)

    def mass(self, raw: np.ndarray) -> np.ndarray:
        """Return the mass of a raw priority in a draw; zero means never, for any alpha."""
        alpha = 0.0 if self.sampler is None else self.sampler["alpha"]
        return np.where(raw > 0, np.power(np.where(raw > 0, raw, 1.0), alpha), 0.0)


def _reach(choice: dict[str, Any]) -> int:
    """Return how many steps back windows reach."""
    return max(0, *(-min(choice[name]) for name in ("obs", "action") if name in choice))


def _writable(field: relive.Field) -> relive.Field:
    return relive.Field(field.shape, field.dtype, every=field.every, writable=True)


def _compressed(field: relive.Field) -> relive.Field:
    if field.dtype.itemsize > 1 or field.writable:
        return field
    options = {"stack": field.stack, "pad": field.pad, "stack_axis": field.stack_axis, "every": field.every}
    return relive.Field(field.shape, field.dtype, **options, compress="zstd")


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
    """Draw arguments of `Sequences`, and how often a state is stored."""
    starts = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
    burn_in, across = draw(st.integers(0, 4)), draw(st.booleans())
    kept = [k for k in range(1, starts + 1) if starts % k == 0 and (across or burn_in % k == 0)]
    if burn_in == 0 and not across and draw(st.booleans()):
        starts, kept = "episodes", [1]
    choice = {
        "length": draw(st.integers(1, 5)),
        "burn_in": burn_in,
        "starts": starts,
        "across_episodes": across,
        "time_major": draw(st.booleans()),
    }
    return choice, draw(st.sampled_from([None, *kept]))


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of `Windows`: of observations, of actions or of both, near and far."""
    some = st.lists(st.integers(-3, 4) | st.integers(-20, 40), min_size=1, max_size=5)
    run = st.tuples(st.integers(-4, 2), st.integers(1, 8)).map(lambda both: [*range(both[0], both[0] + both[1])])
    both = {name: draw(some | run) for name in draw(st.sampled_from([["obs"], ["action"], ["obs", "action"]]))}
    targets = {} if draw(st.booleans()) else {"n_step": None}
    return {**both, "pad": draw(st.sampled_from(["repeat", "zero"])), **targets}


@st.composite
def configs(draw: st.DrawFn, writable: bool = False) -> Config:
    """Draw small buffers, so that a few dozen steps make several laps; every other one has `writable` fields."""
    n_step = draw(st.integers(1, 7))
    schema = draw(st.sampled_from(sorted(SCHEMAS)))
    choice, every = draw(st.one_of(st.just((None, None)), st.just((None, 1)), sequences()))
    around = None if choice else draw(st.none() | windows())
    frames = most_frames(stacks_of(SCHEMAS[schema].tree["obs"]))
    least = n_step + frames - 1
    if choice is not None:
        least = choice["length"] + choice["burn_in"] + n_step - 1 + max(frames - 1, 1)
    if around is not None:
        ahead = 1 + max(0, *(max(around[name]) for name in ("obs", "action") if name in around))
        least = max(ahead, n_step) + _reach(around) + frames - 1
    return Config(
        schema=schema,
        num_envs=draw(st.integers(1, 4)),
        steps=draw(st.integers(least, least + 9)),
        n_step=n_step,
        gamma=draw(st.sampled_from([0.9, 0.99, 1.0, 0.0])),
        sampler=draw(samplers),
        seed=draw(st.integers(0, 2**32)),
        sequences=choice,
        every=every,
        over=draw(st.sampled_from(OVER)),
        storage=draw(st.sampled_from(STORAGES)),
        boundaries=draw(st.sampled_from([0.0, 1.0])),
        chunk=choice is None and around is None and draw(st.booleans()),
        windows=around,
        writable=writable and draw(st.booleans()),
    )
