"""Transitions of one or several steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _check
from .._memory import Arena
from .._ring import Ring
from .._types import Int64
from ..errors import ArgumentError, message
from ..schema import Schema
from ._outputs import Outputs
from ._protocol import Expander, Fields


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """Draw n-step transitions: `reward + discount * V(next_obs)` is the right target in every case.

    For a window of m steps (m = `n_step`, or fewer where the episode ends or the stream is cut inside):

    * `reward` is the sum over k < m of `gamma**k * r[t+k]`,
    * `next_obs` the observation after step t+m-1, the final one if the episode ended there,
    * `discount` is `gamma**m`, or 0 if step t+m-1 terminated (or was truncated without a final observation),
    * `steps` is m, and `terminated` and `truncated` are those of step t+m-1.

    Every other field is the anchor's own. An anchor can be drawn as soon as its window is complete.

    Args:
        n_step: Longest window, in steps (>= 1). At most as many as a lane has rows.
        gamma: Discount per step, in [0, 1].

    Raises:
        ArgumentError: An argument outside these limits; an integer reward with `n_step` > 1.

    Source: Sutton 1988 for n-step returns; the truncation rule follows Pardo et al. 2018.

    >>> Transitions(n_step=3, gamma=0.99)
    Transitions(n_step=3, gamma=0.99)
    """

    n_step: int = 1
    gamma: float = 0.99

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_step", _check.integer(self.n_step, "Transitions(n_step)", minimum=1))
        object.__setattr__(self, "gamma", _check.real(self.gamma, "Transitions(gamma)", low=0.0, high=1.0))

    @property
    def reach(self) -> int:
        """Steps an anchor waits for: `n_step`."""
        return self.n_step

    def check(self, schema: Schema, rows: int) -> None:
        """Refuse windows longer than a lane, and integer rewards that cannot be discounted."""
        if self.n_step > rows:
            remedy = "raise `capacity` or lower `n_step`"
            got = f"`{self.n_step}`"
            raise ArgumentError(
                message(f"at most {rows} steps, the rows of a lane", got, "Transitions(n_step)", remedy)
            )
        dtype = schema.reward.dtype
        if self.n_step > 1 and dtype not in (np.float32, np.float64):
            wanted = "a `float32` or `float64` reward to discount over steps"
            raise ArgumentError(
                message(wanted, f"`{dtype.name}`", "$.reward", "state `reward=Field(...)` in the schema")
            )

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand places of `ring`."""
        return _Transitions(self, schema, ring, arena)


class _Transitions:
    """Plans windows, then has all columns copied in one pass over the rows."""

    def __init__(self, item: Transitions, schema: Schema, ring: Ring, arena: Arena) -> None:
        self._ring = ring
        powers = item.gamma ** np.arange(item.n_step + 1, dtype=np.float64)
        self._gammas, self._discounts = powers, powers.astype(np.float32)
        reward = next(i for i, column in enumerate(schema.columns) if column.keys == ("reward",))
        self._reward = ring.columns[reward]
        self._folds = item.n_step > 1
        # A column's place in the batch, its array, and whether it is read at the anchor (0) or at the successor (1).
        jobs = [
            (column.keys, ring.columns[i], 0)
            for i, column in enumerate(schema.columns)
            if not (self._folds and i == reward)
        ]
        jobs += [
            (("next_obs", *column.keys[1:]), ring.columns[i], 1)
            for i, column in enumerate(schema.columns[: schema.num_obs])
        ]
        self._outputs = Outputs([array for _, array, _ in jobs], arena)
        self._gather = ring.gather([array for _, array, _ in jobs], [pick for _, _, pick in jobs])
        self._keys = [keys for keys, _, _ in jobs]
        self._flat = all(len(keys) == 1 for keys in self._keys)
        self._names = [keys[0] for keys in self._keys]

    def expand(self, places: Int64) -> Fields:
        """Return the transitions that start at `places`."""
        ids, at, steps, discount, terminated, truncated, copies = self._gather.expand(
            self._ring.kernel, places, self._discounts, self._outputs.of(len(places))
        )
        fields: Fields = dict(zip(self._names, copies)) if self._flat else _nest(self._keys, copies)  # noqa: B905
        if self._folds:
            fields["reward"] = self._ring.fold(self._reward, at, steps, self._gammas)
        fields["discount"] = discount
        fields["terminated"] = terminated
        fields["truncated"] = truncated
        fields["steps"] = steps
        fields["ids"] = ids
        return fields


def _nest(keys: list[tuple[str, ...]], arrays: list[Any]) -> Fields:
    fields: Fields = {}
    for path, array in zip(keys, arrays, strict=True):
        node = fields
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = array
    return fields
