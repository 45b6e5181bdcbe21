"""Which trajectories a draw may take, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._base import check
from .._base.frozen import Frozen
from .._base.types import Float64, Int64
from ..errors import ArgumentError, NotEnoughData, SchemaError, message
from ._draws import DrawGenerator

Info = dict[str, Any]
_AT = "TrajectoryReplayBuffer.sample"
_GRAIN = 2**53  # uniform numbers have this many values


class Selection(Frozen, kw_only=True):
    """Rules for draws: the trajectories to draw chunk-steps from, and their weights.

    A trajectory is taken whole or not at all. What the rules look at is what `get_trajectory_info` returns.

    Args:
        max_staleness: Largest difference between the present policy's version and the oldest one in the field
            `versions`.
        policy_version: The present policy's version; None: the newest version in the window.
        success: True draws from successes only, False from failures only: `success` or `is_success`, which a trajectory
            has once or per step. With several environments one success is enough.
        min_length: Least number of chunk-steps, T.
        max_length: Largest number of chunk-steps, T.
        where: Called with the info of each trajectory in the window, once; False leaves it out.
        weights: Relative weights, by the trajectory's id or by its `task`; 1 where neither is named.
        per: What is equally likely where all weights are 1: each `"step"`, each `"trajectory"`, or each `"task"`.
        replacement: False draws no chunk-step twice in a batch; the time then grows with the window.

    Raises:
        ArgumentError: An argument is outside its limits.

    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> buffer = TrajectoryReplayBuffer(seed=0)
    >>> for version in range(4):
    ...     versions = np.full((5, 2, 1), version, np.float32)
    ...     buffer.add_trajectories([Trajectory(versions=versions, task="ab"[version % 2], success=version < 3)])
    >>> sorted(set(buffer.sample(100, max_staleness=2, success=True).versions.ravel().tolist()))
    [1.0, 2.0]
    >>> buffer.select = Selection(per="task", weights={"a": 3, "b": 1})
    >>> round(float((buffer.sample(10_000).versions % 2 == 0).mean()), 1)
    0.8
    """

    max_staleness: float | None = None
    policy_version: float | None = None
    success: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    where: Callable[[Info], bool] | None = None
    weights: Mapping[int | str, float] | None = None
    per: str = "step"
    replacement: bool = True

    def __post_init__(self) -> None:
        for name in ("max_staleness", "policy_version"):
            if getattr(self, name) is not None:
                low = 0.0 if name == "max_staleness" else -np.inf
                object.__setattr__(self, name, check.real(getattr(self, name), f"Selection({name})", low=low))
        for name in ("min_length", "max_length"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check.integer(getattr(self, name), f"Selection({name})", minimum=1))
        if self.success is not None:
            check.flag(self.success, "Selection(success)")
        if self.where is not None and not callable(self.where):
            raise ArgumentError(message("a function", f"`{self.where!r}`", "Selection(where)"))
        if self.weights is not None and not isinstance(self.weights, Mapping):
            got = f"`{type(self.weights).__name__}`"
            raise ArgumentError(message("a mapping of ids or tasks to weights", got, "Selection(weights)"))
        for key, weight in (self.weights or {}).items():
            if not isinstance(key, int | np.integer | str) or isinstance(key, bool):
                raise ArgumentError(message("ids and tasks", f"`{key!r}`", "Selection(weights)"))
            check.real(weight, f"Selection(weights[{key!r}])", low=0.0)
        check.one_of(self.per, ("step", "trajectory", "task"), "Selection(per)")
        check.flag(self.replacement, "Selection(replacement)")

    def masses(self, infos: Sequence[Info]) -> Float64:
        """Return for each trajectory a number in proportion to the probability that a row of a batch is from it."""
        newest = self.policy_version
        if self.max_staleness is not None and newest is None:
            newest = max((info["max_version"] for info in infos if info["max_version"] is not None), default=0.0)
        refused: Counter[str] = Counter()
        allowed = np.ones(len(infos), bool)
        for k, info in enumerate(infos):
            reason = self._refuses(info, newest)
            if reason is not None:
                allowed[k], refused[reason] = False, refused[reason] + 1
        rows = np.array([info["num_samples"] for info in infos], np.float64)
        masses = rows if self.per == "step" else np.ones(len(infos))
        if self.per == "task":
            names, which = np.unique([_task(info) for info in infos], return_inverse=True)
            masses = rows / np.bincount(which, rows * allowed, len(names)).clip(1)[which]
        if self.weights is not None:
            known = self.weights
            weights = [known.get(info["trajectory_id"], known.get(info["task"], 1.0)) for info in infos]
            masses = masses * np.array(weights, np.float64)
        masses = masses * allowed
        if not masses.any():
            reasons = ", ".join(f"{count} by `{reason}`" for reason, count in refused.items()) or "all by their weights"
            got = f"none of the {len(infos)} in the window"
            raise NotEnoughData(message("at least 1 trajectory that may be drawn", got, _AT, f"left out: {reasons}"))
        return masses

    def _refuses(self, info: Info, newest: float | None) -> str | None:
        """Return the rule that leaves a trajectory out, if any."""
        if self.max_staleness is not None and newest is not None:
            oldest = _known(info, "version", "a field `versions`", "max_staleness")
            if newest - oldest > self.max_staleness:
                return f"max_staleness={self.max_staleness:g}"
        wanted = self.success
        if wanted is not None and _known(info, "success", "`success`, once or per step", "success") is not wanted:
            return f"success={wanted}"
        if self.min_length is not None and info["length"] < self.min_length:
            return f"min_length={self.min_length}"
        if self.max_length is not None and info["length"] > self.max_length:
            return f"max_length={self.max_length}"
        return "where" if self.where is not None and not self.where(dict(info)) else None

    def draw(self, n: int, draws: DrawGenerator, masses: Float64, rows: Int64) -> tuple[Int64, Int64]:
        """Draw `n` rows: for each the position of its trajectory, and its row there."""
        if not self.replacement:
            return _distinct(n, draws, masses, rows)
        if self.per == "step" and self.weights is None:  # one number a row, as without rules
            ends: Int64 = np.cumsum(np.where(masses > 0, rows, 0))
            drawn = draws.integers(int(ends[-1]), n)
            positions = np.searchsorted(ends, drawn, side="right")
            return positions, drawn - (ends[positions] - rows[positions])
        totals = np.cumsum(masses)
        points = draws.integers(_GRAIN, n) * (totals[-1] / _GRAIN)
        # Rounding may give a point at the very end; the last trajectory with a positive mass has it.
        positions = np.minimum(np.searchsorted(totals, points, side="right"), np.flatnonzero(masses)[-1])
        chosen: Int64 = (draws.integers(_GRAIN, n) * (rows[positions] / _GRAIN)).astype(np.int64)
        return positions, chosen


def _distinct(n: int, draws: DrawGenerator, masses: Float64, rows: Int64) -> tuple[Int64, Int64]:
    """Draw `n` different rows, one after the other, each in proportion to its mass among those that are left.

    Exponential numbers with the masses as rates come in the order of such draws (Efraimidis and Spirakis 2006).
    """
    kept = np.flatnonzero(masses)
    which = np.repeat(kept, rows[kept])
    if n > len(which):
        got = f"{len(which)} in the {len(kept)} trajectories that may be drawn"
        raise NotEnoughData(message(f"at least {n} different chunk-steps", got, _AT))
    uniform = (draws.integers(_GRAIN, len(which)) + 1.0) / _GRAIN
    times = -np.log(uniform) * np.repeat(rows[kept] / masses[kept], rows[kept])
    first = np.argpartition(times, n - 1)[:n]
    first = first[np.argsort(times[first])]
    starts = np.cumsum(rows[kept]) - rows[kept]
    return which[first], first - starts[np.searchsorted(kept, which[first])]


def _known(info: Info, name: str, what: str, rule: str) -> Any:
    if info[name] is None:
        at = f"trajectory {info['trajectory_id']}"
        raise SchemaError(message(f"{what}, which `{rule}` looks at", "none", at, "add it, or use `where`"))
    return info[name]


def _task(info: Info) -> str:
    task = _known(info, "task", "one `task`", 'per="task"')
    return str(task)
