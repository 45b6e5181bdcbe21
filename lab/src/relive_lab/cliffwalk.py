"""The Blind Cliffwalk: how many updates Q-learning needs until it knows a chain of `n` states, by the rule of replay.

Schaul et al. (2016, "Prioritized Experience Replay", arXiv:1511.05952), section 3.1 and appendix B.1. In state `s` of
`0 .. n-1` the right action is `s % 2`: it leads to `s + 1`, in the last state to a reward of 1 and the end. The other
action ends the episode without reward. The memory holds every one of the `2**n` sequences of actions, each played until
its episode ends, in random order: `2**(n+1) - 2` transitions, one of them with a reward. Nothing is added later.

The true values are known (`gamma**(n-1-s)` for the right action, 0 for the other, gamma = 1 - 1/n). A run counts the
updates until the mean squared error over all pairs of state and action falls below 1e-3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.errors import ArgumentError, message
from relive_lab import checks

Going = Callable[[], bool]
Seen = tuple[int, int, float, int, float]

SOLVED = 1e-3  # mean squared error
STEP_SIZE = 0.25
SPREAD = 0.1  # standard deviation of the initial parameters
# A run that needs more updates than this many times the memory's size counts as unsolved.
PATIENCE = 200
# Updates between two calls of `going`; also uniform draws fetched at a time.
ROUND = 256

# A run takes about this many microseconds for each transition in its memory.
COSTS = {"uniform": 20, "oracle": 3, "beta 1": 190, "beta 0.4": 30, "prop": 18}

Sampler = relive.Uniform | relive.Prioritized


# Batches hold one item. Divided by the largest of its batch every weight would be 1, and the correction gone. So the
# samplers give raw weights, of which a step takes `min(1, weight)`.
_by_size = functools.partial(relive.Prioritized, weights="none")
# The oracle needs no sampler.
ARMS: dict[str, Sampler | None] = {
    "uniform": relive.Uniform(),
    "oracle": None,
    "prop 1": _by_size(alpha=1.0, beta=0.0),
    "prop 0.6": _by_size(alpha=0.6, beta=0.0),
    "prop 0.6, beta 0.4": _by_size(alpha=0.6, beta=0.4),
    "prop 0.6, beta 1": _by_size(alpha=0.6, beta=1.0),
}
# The oracle looks one update ahead; with a bias that all share, every single update can raise the error, and it stalls.
LEARNERS: dict[str, tuple[str, ...]] = {
    "table": tuple(ARMS),
    "linear": tuple(arm for arm in ARMS if arm != "oracle"),
    "network": ("uniform", "prop 0.6, beta 0.4"),
}


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One run: a learner on a chain of `n` states, replaying by one rule.

    Args:
        n: Length of the chain, 2 to 20.
        learner: `table` (a number for each pair), `linear` (the same and a bias that all share), or `network` (one-hot
            states, 64 rectified units, Adam, batches of 32 whose weights are divided by their largest; loads PyTorch).
        arm: One of `LEARNERS[learner]`.
        seed: Decides the draws, and in all arms alike the order of the memory and the initial parameters.

    Raises:
        ArgumentError: A value outside these limits.

    >>> walk = Walk(n=4, learner="table", arm="prop 0.6", seed=0)
    >>> updates = walk.run()
    >>> walk.memory_size, updates < Walk(n=4, learner="table", arm="uniform", seed=0).run()
    (30, True)
    """

    n: int
    learner: str
    arm: str
    seed: int

    def __post_init__(self) -> None:
        if self.n not in range(2, 21):
            raise ArgumentError(message("an integer from 2 to 20", f"`{self.n!r}`", "Walk(n)"))
        checks.one_of(self.learner, [*LEARNERS], "Walk(learner)")
        checks.one_of(self.arm, LEARNERS[self.learner], "Walk(arm)")
        checks.integer(self.seed, "Walk(seed)", 0)

    @property
    def gamma(self) -> float:
        """Discount, 1 - 1/n."""
        return 1.0 - 1.0 / self.n

    @property
    def memory_size(self) -> int:
        """Transitions in the memory, 2**(n+1) - 2."""
        return (2 << self.n) - 2

    @property
    def label(self) -> str:
        """The name of the run."""
        return f"{self.learner}, n = {self.n}, {self.arm}, seed {self.seed}"

    @property
    def cost(self) -> float:
        """Microseconds that the run takes, roughly."""
        if self.learner == "network":
            return 1e6 * (0.2 + 2.0 ** (self.n - 12))
        factor: int = next(cost for word, cost in COSTS.items() if word in self.arm)
        return 1e3 + self.memory_size * factor

    def run(self, going: Going = lambda: True) -> float | None:
        """Learn until the values are right; `going` is asked every few hundred updates, and False ends the run early.

        Returns:
            The number of updates; infinity if 200 times the memory's size were not enough, None if it was ended.
        """
        rng = np.random.default_rng((self.seed, self.n))
        steps, limit = memory(self.n, rng), PATIENCE * self.memory_size
        sampler = ARMS[self.arm]
        if self.learner == "network":
            from relive_lab import cliffwalk_net  # loads PyTorch

            if sampler is not None and sampler.prioritizes:
                sampler = sampler.__replace__(weights="batch")
            return cliffwalk_net.learn(truth(self.n), SOLVED, self.fill(steps, sampler), limit, rng, going)
        values = Values(truth(self.n), rng, shared_bias=self.learner == "linear")
        buffer = self.fill(steps, sampler)
        if sampler is None:
            draws = _best(values, buffer, steps)
        else:
            draws = (_prioritized if sampler.prioritizes else _uniform)(buffer)
        return _learn(values, draws, limit, going)

    def fill(self, steps: dict[str, Any], sampler: Sampler | None) -> relive.ReplayBuffer:
        """Return a buffer that holds `steps` and draws by `sampler`, every transition at a priority of 1."""
        buffer = relive.ReplayBuffer(
            relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "int64")),
            self.memory_size,
            item=relive.Transitions(gamma=self.gamma),
            sampler=sampler,
            seed=np.random.default_rng((self.seed, self.n, 1)),
        )
        # The following step's observation is the successor, and after a terminal step none is needed.
        buffer.extend(**steps, truncated=np.zeros(self.memory_size, bool))
        return buffer


def memory(n: int, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Play every sequence of actions until its episode ends, in an order drawn from `rng`.

    Returns:
        `obs` and `action` (int64), `reward` (float64) and `terminated` (bool), each `[2**(n+1) - 2]`.

    >>> steps = memory(3, np.random.default_rng(0))
    >>> len(steps["obs"]), steps["reward"].sum(), np.bincount(steps["obs"]).tolist()
    (14, np.float64(1.0), [8, 4, 2])
    """
    state = np.arange(n)
    action = rng.permutation(2**n)[:, None] >> state & 1
    right = action == state % 2
    played = np.ones_like(right)
    played[:, 1:] = np.logical_and.accumulate(right[:, :-1], axis=1)
    last = state == n - 1
    return {
        "obs": np.broadcast_to(state, played.shape)[played],
        "action": action[played],
        "reward": (right & last)[played].astype(float),
        "terminated": (~right | last)[played],
    }


def truth(n: int) -> npt.NDArray[np.float64]:
    """Return the values to be learnt, float64 `[n, 2]`.

    >>> truth(2).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    values, state = np.zeros((n, 2)), np.arange(n)
    values[state, state % 2] = (1.0 - 1.0 / n) ** (n - 1 - state)
    return values


class Values:
    """Q-learning with one number for each pair of state and action, and perhaps a bias that all of them share.

    Python numbers: an update touches one or two of them. `rng` draws the initial values, N(0, 0.1).

    >>> values = Values(truth(2), np.random.default_rng(0), shared_bias=False)
    >>> for _ in range(40):
    ...     for seen in ((0, 0, 0.0, 1, 0.5), (0, 1, 0.0, 0, 0.0), (1, 0, 0.0, 0, 0.0), (1, 1, 1.0, 0, 0.0)):
    ...         td_error = values.learn(*seen)
    >>> values.solved()
    True
    """

    def __init__(self, true: npt.NDArray[np.float64], rng: np.random.Generator, *, shared_bias: bool) -> None:
        self._own: list[list[float]] = rng.normal(0.0, SPREAD, true.shape).tolist()
        self._bias = float(rng.normal(0.0, SPREAD)) if shared_bias else 0.0
        self._true: list[list[float]] = true.tolist()
        self._bias_step = STEP_SIZE if shared_bias else 0.0
        self._pairs = true.size
        self._recount()

    def learn(self, obs: int, action: int, reward: float, next_obs: int, discount: float, weight: float = 1.0) -> float:
        """Update one value; return the TD error that it had."""
        row = self._own[obs]
        before = row[action]
        td_error = reward - before - self._bias
        if discount:
            td_error += discount * (max(self._own[next_obs]) + self._bias)
        step = weight * td_error
        row[action] = after = before + STEP_SIZE * step
        self._bias += self._bias_step * step
        goal = self._true[obs][action]
        self._sum += after - before
        self._squares += (after - goal) ** 2 - (before - goal) ** 2
        return td_error

    def gain(self, obs: int, action: int, reward: float, next_obs: int, discount: float) -> float:
        """Return the fall of the squared error if this transition were learnt (without a bias)."""
        before = self._own[obs][action]
        td_error = reward + discount * max(self._own[next_obs]) - before
        error = before - self._true[obs][action]
        return error**2 - (error + STEP_SIZE * td_error) ** 2

    def error(self) -> float:
        """Return the mean squared error over all pairs."""
        bias = self._bias
        return (self._squares + 2.0 * bias * self._sum) / self._pairs + bias * bias

    def solved(self) -> bool:
        """Return True if the error is below 1e-3."""
        if self.error() >= SOLVED:
            return False
        self._recount()  # no rounding of the running sums decides
        return self.error() < SOLVED

    def _recount(self) -> None:
        errors = np.subtract(self._own, self._true)
        self._sum, self._squares = float(errors.sum()), float((errors**2).sum())


# What is drawn, one transition and its weight at a time; each is sent back the TD error that the transition had.
Draws = Generator[tuple[Any, ...], float | None, None]


def _learn(values: Values, draws: Draws, limit: int, going: Going) -> float | None:
    updates = 0
    td_error: float | None = None
    while updates < limit and going():
        for _ in range(ROUND):
            td_error = values.learn(*draws.send(td_error))
            updates += 1
            if values.solved():
                return updates
    return np.inf if updates >= limit else None


def _uniform(buffer: relive.ReplayBuffer) -> Draws:
    """Yield many draws at a time, which do not depend on the values learnt: the same ids as one by one."""
    while True:
        for seen in _transitions(buffer.sample(ROUND)):  # noqa: UP028
            yield seen  # not `yield from`: a batch takes no answers


def _prioritized(buffer: relive.ReplayBuffer) -> Draws:
    while True:
        batch = buffer.sample(1)
        (seen,) = _transitions(batch)
        td_error = yield *seen, min(1.0, batch.weights.item())
        buffer.update_priorities(batch.ids, [td_error])


def _best(values: Values, buffer: relive.ReplayBuffer, steps: dict[str, npt.NDArray[Any]]) -> Draws:
    """Yield the transition that lowers the error most; every pair of state and action is one, often stored."""
    _, first = np.unique(2 * steps["obs"] + steps["action"], return_index=True)
    choices = list(_transitions(buffer.read(first)))
    while True:
        yield max(choices, key=lambda seen: values.gain(*seen))


def _transitions(batch: relive.Batch) -> Iterator[Seen]:
    """Yield the items of a batch one by one, in Python numbers."""
    columns = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount)
    return zip(*(column.tolist() for column in columns), strict=True)
