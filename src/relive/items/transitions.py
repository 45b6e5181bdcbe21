"""Transitions of one or several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._base import check
from .._base.forks import importing
from .._base.frozen import Frozen
from .._base.memory import Arena
from .._base.nests import nested
from .._base.types import Int64
from .._ring.plans import Window
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..schema import Schema
from ._columns import Frames, check_reward, check_steps, lookback_of
from ._outputs import Outputs
from ._protocol import Item

if TYPE_CHECKING:
    from .._ring.kernel_types import ExpansionKernel
    from ._protocol import Expander, Fields


class Transitions(Frozen, Item, kw_only=True):
    """Draw n-step transitions: `reward + discount * V(next_obs)` is the right target in every case.

    For a window of m steps (m = `n_step`, or fewer where the episode ends or the stream is cut inside):

    * `reward` is the sum over k < m of `gamma**k * r[t+k]`,
    * `next_obs` the observation after step t+m-1, the final one if the episode ended there,
    * `discount` is `gamma**m`, or 0 if step t+m-1 terminated (or was truncated without a final observation),
    * `steps` is m, and `terminated` and `truncated` are those of step t+m-1.

    With a field `discount` of the schema, `gamma * d[t+k]` takes the place of `gamma`: `reward` is the sum over k < m
    of `r[t+k]` times the product over j < k of `gamma * d[t+j]`, and `discount` the product over all j < m.

    Every other field is the anchor's own. `chunk=True` is for policies that act in chunks: `action` is then
    `[B, n_step, ...]`, the actions of all steps of the window, and `mask`, bool `[B, n_step]`, says which of them are
    there. Behind a window that was cut short actions are zeros, and `mask` is False. All else is as without.

    An anchor can be drawn as soon as its window is complete, and until a row
    that it needs, older frames of its observation included, has been overwritten.

    Args:
        n_step: Longest window, in steps (>= 1). At most as many as a lane keeps, less the older frames of a stack.
        gamma: Discount per step, in [0, 1].
        chunk: Whether `action` has the actions of all steps of the window.

    Raises:
        ArgumentError: An argument outside these limits; an integer reward with `n_step` > 1, or a field that is kept at
            every k-th step only, when the buffer is built.

    Source: Sutton 1988 for n-step returns; the truncation rule follows Pardo et al. 2018; chunks as in Li et al.,
    "Reinforcement Learning with Action Chunking" (Q-chunking), 2025.

    >>> Transitions(n_step=3, gamma=0.99)
    Transitions(n_step=3, gamma=0.99)
    >>> import numpy as np, relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 100, item=Transitions(n_step=3, chunk=True))
    >>> time, no = np.arange(4.0), np.zeros(4, bool)
    >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=time == 3, truncated=no)
    >>> batch = buffer.read(ids[1:3])
    >>> batch.action.tolist(), batch.mask.tolist()
    ([[1.0, 2.0, 3.0], [2.0, 3.0, 0.0]], [[True, True, True], [True, True, False]])
    """

    n_step: int = 1
    gamma: float = 0.99
    chunk: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_step", check.integer(self.n_step, "Transitions(n_step)", minimum=1))
        object.__setattr__(self, "gamma", check.real(self.gamma, "Transitions(gamma)", low=0.0, high=1.0))
        check.flag(self.chunk, "Transitions(chunk)")

    def __repr__(self) -> str:
        return f"Transitions(n_step={self.n_step}, gamma={self.gamma}{', chunk=True' if self.chunk else ''})"

    def window(self, schema: Schema) -> Window:
        """Require `n_step` stored steps from the first on, with the older frames of its observation."""
        return Window(span=self.n_step, lookback=lookback_of(schema), actions=self.chunk and self.n_step > 1)

    def check(self, schema: Schema, steps: int) -> None:
        """Refuse windows longer than a lane, integer rewards, and state that is not kept at every step."""
        older = lookback_of(schema)
        frames = f" and {older} older frames" if older else ""
        check_steps(self.n_step + older, steps, frames and f" ({self.n_step} steps{frames})", "Transitions(n_step)")
        check_reward(schema, self.n_step)
        refuse_states(schema)

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`."""
        if schema.discount is None:
            return _Transitions(self, schema, ring, arena)
        with importing:
            from ._discounts import bound

        return bound(_Transitions, self, schema, ring, arena)


def refuse_states(schema: Schema) -> None:
    """Refuse fields that are not kept at every step, for items that start at any."""
    for column in schema.columns:
        if (column.field.every or 1) > 1:
            wanted = "fields that are kept at every step, at any of which a transition may start"
            remedy = "use `every=1`, or `Sequences(starts=...)`"
            raise ArgumentError(message(wanted, f"`every={column.field.every}`", column.path, remedy))


class _Transitions:
    """Plans windows, then has all columns copied in one pass over the rows; stacks of frames in a second one."""

    kernel: ExpansionKernel | None = None  # none for this schema, or with these kernels

    def __init__(
        self,
        item: Transitions,
        schema: Schema,
        ring: Ring,
        arena: Arena,
        without: frozenset[tuple[str, ...]] = frozenset(),
    ) -> None:
        """Prepare to expand slots, without the anchor's own values of some columns."""
        self._ring = ring
        powers = item.gamma ** np.arange(item.n_step + 1, dtype=np.float64)
        self._gammas, self._discounts = powers, powers.astype(np.float32)
        columns = list(zip(schema.columns, ring.columns, strict=True))
        self._reward = ring.reward
        self._folds = item.n_step > 1
        self._states = [(c.keys, array, c.field.every) for c, array in columns if c.field.every]
        self._chunks = [(c.keys, array) for c, array in columns if item.chunk and c.keys[0] == "action"]
        self._ahead = np.arange(item.n_step)
        stacked = [(c, array) for c, array in columns if c.field.stack]
        left = {keys for keys, _ in self._chunks} | without
        # A column's keys in the batch, its array, and whether it is read at the anchor (0) or at the successor (1).
        jobs = [
            (c.keys, array, 0)
            for c, array in columns
            if not (c.field.every or c.field.stack or (self._folds and c.keys == ("reward",)) or c.keys in left)
        ]
        jobs += [(("next_obs", *c.keys[1:]), array, 1) for c, array in columns[: schema.num_obs] if not c.field.stack]
        self._outputs = Outputs([array for _, array, _ in jobs], arena)
        self._gather = ring.gather([array for _, array, _ in jobs], [pick for _, _, pick in jobs])
        self._frames = Frames([c for c, _ in stacked], [array for _, array in stacked], ring, arena, 2)
        self._stacked = bool(stacked)
        # Rows that are read again after the copy must not be overwritten in between.
        self._last = not (self._folds or self._states or stacked or item.chunk)
        self._keys = [keys for keys, _, _ in jobs] + [keys for keys, *_ in self._states]
        for name in ("obs", "next_obs") if stacked else ():
            self._keys += [(name, *c.keys[1:]) for c, _ in stacked]
        self._flat = all(len(keys) == 1 for keys in self._keys)
        self._names = [keys[0] for keys in self._keys]
        if not self._states:
            keys, reward = [keys for keys, _, _ in jobs], self._reward if self._folds else None
            stacks = self._frames.compiled()
            chunks = self._chunks if item.chunk else None
            self.kernel = self._gather.transitions(
                ring.kernel, self._discounts, keys, stacks, reward, self._gammas, chunks
            )

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the transitions that start at `slots`."""
        if self.kernel is not None:
            return self.kernel.items(slots)
        kernel, outs = self._ring.kernel, self._outputs.of(len(slots))
        windows, copies = self._gather.expand(kernel, slots, self._discounts, self._last, outs)
        ids, at, after, steps, discount, terminated, truncated = windows
        if self._states:
            copies += [array[self._ring.state_rows(ids, every)] for _, array, every in self._states]
        if self._stacked:
            for stacks in self._frames.of(at, after):
                copies += stacks
        fields: Fields = dict(zip(self._names, copies)) if self._flat else nested(zip(self._keys, copies))  # noqa: B905
        if self._folds:
            fields["reward"] = self._ring.fold(self._reward, at, steps, self._gammas)
        if self._chunks:
            length = len(self._ahead)
            fields |= nested((keys, self._ring.chunks(array, at, steps, length)) for keys, array in self._chunks)
        fields["discount"] = discount
        fields["terminated"] = terminated
        fields["truncated"] = truncated
        fields["steps"] = steps
        if self._chunks:
            fields["mask"] = self._ahead < steps[:, None]
        fields["ids"] = ids
        return fields
