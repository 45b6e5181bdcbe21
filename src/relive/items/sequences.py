"""Sequences of steps, for recurrent learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .._base import check
from .._base.frozen import Frozen
from .._base.memory import Arena
from .._base.nests import nested
from .._base.types import Array, Int64
from .._ring.plans import Kept, Part, Unrolled, Window
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..schema import Column, Schema
from ._columns import Frames, check_reward, check_steps, lookback_of
from ._discounts import bound
from ._outputs import Outputs
from ._protocol import Item, View, sealed
from ._whole import Whole

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

    from .._ring.kernel_types import ExpansionKernel
    from ._protocol import Expander, Fields

Found: TypeAlias = tuple[tuple[str, ...], Array]


class Sequences(Frozen, Item):
    """Draw consecutive steps from each anchor, with n-step targets at every one of them, and the steps before it.

    With T = `burn_in + length`, `[B, T, ...]` (or `[T, B, ...]`) each:

    * `obs`, `next_obs`: views of one array `all_obs` of T + `n_step` observations;
    * `action`, every extra, and, as `Transitions(n_step, gamma)` gives them for each step, `reward`, `discount`,
      `terminated`, `truncated` (those of the last step of its window) and `steps`;
    * `prev_action`, `prev_reward`: what came before each observation, zero at an episode's first step; views of
      `all_prev_action`, as `action` is one, and of `all_prev_reward`, which have T + `n_step` entries, too;
    * `mask`: which steps exist; with `step_ids=True` also `step_ids`, the steps' ids, -1 where there is none, for
      `ReplayBuffer.write`.

    Views, and what they are views of, are read-only.

    *Burn-in.* The anchor, which `ids` names, is the first step to learn from: at position `burn_in`, where `mask` is
    always True. In front of it are the up to `burn_in` steps before it in its episode. Where these are fewer, the first
    positions are padding, so a learner keeps its state over them. Across episodes the anchor is at position 0 instead,
    and the steps to learn from are those `burn_in` steps later in the stream.

    `first` (bool, `[B]`) tells which items' first step begins an episode, or a stream after a cut: what an agent
    remembers is nothing there. A schema's own field `first` takes its place.

    Fields with `every=k` (recurrent state) come as they were at the first step shown, `[B, ...]`, zero where an episode
    begins with a step at which they are not kept; `ids` and `weights` are `[B]`.

    Steps that do not exist, after an episode's end, or a cut, and before its begin, are padding: `mask` is False,
    `discount`, `reward`, `action`, extras and flags are zero, and observations repeat the nearest one, so that
    `next_obs` stays right. With `across_episodes` only a cut ends a sequence; the flags tell where episodes end, and
    `next_obs` is the final observation there.

    *Whole episodes.* With `starts="episodes"` an item is an episode, from its first step, and `length` the most that it
    shows: of a longer one, which a warning names once, the rest is left out. Drawn by `Uniform(replacement=False)` they
    are the batches of PyMARL and EPyMARL. `trim=True` leaves out the positions after the last step of all items.

    `ahead=("value",)` adds `next_value`: the extra of the step n steps on, where `next_obs` is, zero where the episode
    has no such step. An item then waits for one step more.

    An anchor can be drawn as soon as its `length + n_step - 1` steps (across episodes `burn_in` more) and what follows
    them are known, or its episode has ended, and until a row that it needs has been overwritten.

    Args:
        length: Steps to learn from, >= 1.
        burn_in: Steps in front of these, to refresh a recurrent state, >= 0.
        n_step: Longest window of a target, >= 1.
        gamma: Discount per step, in [0, 1].
        starts: Anchors are the steps whose number in their lane, counted from 0, is a multiple of this, >= 1; or
            `"episodes"`: the first step of each episode, and of what follows a cut.
        across_episodes: Whether sequences continue past an episode's end.
        time_major: Whether time is the first axis.
        step_ids: Whether batches have the ids of all steps.
        trim: Whether a batch is as long as its longest item. `Mixture` and `Shards`, which join batches, refuse it.
        ahead: Names of extras that are shown n steps on, too.

    Raises:
        ArgumentError: An argument outside these limits; episodes with a burn-in; episodes, or extras ahead, across
            episodes; more steps than a lane keeps, an integer reward with
            `n_step` > 1, or `starts` or `burn_in` that is not a multiple of a field's `every`, when the buffer is
            built.

    Source: Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning", ICLR 2019; the
    layout of inputs follows rlpyt (Stooke and Abbeel 2019).

    >>> Sequences(80, burn_in=40, n_step=5, gamma=0.997, starts=40).steps
    120
    """

    length: int
    _: KW_ONLY
    burn_in: int = 0
    n_step: int = 1
    gamma: float = 0.99
    starts: int | str = 1
    across_episodes: bool = False
    time_major: bool = False
    step_ids: bool = False
    trim: bool = False
    ahead: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, minimum in (("length", 1), ("burn_in", 0), ("n_step", 1), ("starts", 1)):
            if name == "starts" and isinstance(self.starts, str):
                object.__setattr__(self, "starts", check.one_of(self.starts, ["episodes"], "Sequences(starts)"))
                continue
            checked = check.integer(getattr(self, name), f"Sequences({name})", minimum=minimum)
            object.__setattr__(self, name, checked)
        object.__setattr__(self, "gamma", check.real(self.gamma, "Sequences(gamma)", low=0.0, high=1.0))
        check.flag(self.across_episodes, "Sequences(across_episodes)")
        check.flag(self.time_major, "Sequences(time_major)")
        check.flag(self.step_ids, "Sequences(step_ids)")
        check.flag(self.trim, "Sequences(trim)")
        given = self.ahead
        if isinstance(given, str) or not all(isinstance(name, str) for name in given):
            raise ArgumentError(message("names of extras", f"`{given!r}`", "Sequences(ahead)"))
        object.__setattr__(self, "ahead", tuple(map(str, given)))
        apart = {
            "burn_in": self.starts == "episodes" and self.burn_in,
            "across_episodes": self.across_episodes and (self.starts == "episodes" or self.ahead),
        }
        for name in (name for name, wrong in apart.items() if wrong):
            why = '`starts="episodes"`' if self.starts == "episodes" else "`ahead`"
            raise ArgumentError(message(f"none with {why}", f"`{getattr(self, name)}`", f"Sequences({name})"))

    @property
    def steps(self) -> int:
        """Steps of one item, `burn_in + length`."""
        return self.burn_in + self.length

    @property
    def _back(self) -> int:
        """Steps in front of an anchor, at most."""
        return 0 if self.across_episodes else self.burn_in

    @property
    def views(self) -> dict[str, View]:
        """`obs`, `next_obs`, `action` and what came before each step, as parts of longer arrays."""
        return {
            "obs": View("all_obs", 0, self.steps),
            "next_obs": View("all_obs", self.n_step, self.n_step + self.steps),
            "action": View("all_prev_action", 1, 1 + self.steps),
            "prev_action": View("all_prev_action", 0, self.steps),
            "prev_reward": View("all_prev_reward", 0, self.steps),
        }

    def __repr__(self) -> str:
        return super().__repr__().replace(", step_ids=False", "").replace(", trim=False", "").replace(", ahead=()", "")

    def window(self, schema: Schema) -> Window:
        """Start at every `starts`-th step; its burn-in, the step before that, and older frames are needed, too."""
        return Window(
            span=self.steps - self._back + self.n_step - (0 if self.ahead else 1),
            lookback=self._back + max(lookback_of(schema), 1),
            starts=0 if isinstance(self.starts, str) else self.starts,
            across=self.across_episodes,
        )

    def check(self, schema: Schema, steps: int) -> None:
        """Refuse what a lane cannot hold, integer rewards, and starts where a field is not kept."""
        window = self.window(schema)
        parts = f" ({self.steps} + {self.n_step - 1} steps, and {window.lookback - self._back} before them)"
        check_steps(window.span + window.lookback, steps, parts, "Sequences(length)")
        check_reward(schema, self.n_step)
        if self._lists(schema) and "step_ids" in schema.tree:
            wanted, got = "a schema without a field `step_ids`", "one with it"
            raise ArgumentError(message(wanted, got, "Sequences(step_ids)", "give the field another name"))
        for name in self.ahead:
            extras = [column for column in schema.columns if column.keys[0] == name]
            if name in ("obs", "action", "reward", "discount") or not extras or any(c.field.every for c in extras):
                wanted = "the name of an extra that every step has"
                raise ArgumentError(message(wanted, f"`{name}`", "Sequences(ahead)"))
            if f"next_{name}" in schema.tree:
                remedy = "give the field another name"
                raise ArgumentError(message(f"no field `next_{name}`", "one", "Sequences(ahead)", remedy))
        for column in schema.columns:
            every = column.field.every or 1
            # Episodes start at steps of any number.
            for name, value in (
                ("starts", 1 if isinstance(self.starts, str) else self.starts),
                ("burn_in", self._back),
            ):
                if value % every:
                    wanted = f"`{name}` to be a multiple of {every}, the steps at which `{column.path[2:]}` is kept"
                    remedy = f"say `Sequences({name}={every})`, so that no item starts without its state"
                    raise ArgumentError(message(wanted, f"`{value}`", f"Sequences({name})", remedy))

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`."""
        listed = self if self.step_ids or not self._lists(schema) else self.__replace__(step_ids=True)
        inner = bound(_Sequences, listed, schema, ring, arena, "step_ids", listed is self)
        if not (self.trim or self.ahead or self.starts == "episodes"):
            return inner
        return Whole(self, inner, schema, ring, arena)

    def _lists(self, schema: Schema) -> bool:
        """Return True if the ids of all steps are needed: asked for, or to fold windows by the discounts of steps."""
        return self.step_ids or (schema.discount is not None and self.n_step > 1)


class _Sequences:
    """Has all columns copied run by run in one call; stacks of frames, by lists of rows, in a second one."""

    kernel: ExpansionKernel | None = None  # none for this schema, or with these kernels

    def __init__(self, item: Sequences, schema: Schema, ring: Ring, arena: Arena) -> None:
        self._item, self._ring = item, ring
        self._tells_first = "first" not in schema.tree
        powers = item.gamma ** np.arange(item.n_step + 1, dtype=np.float64)
        self._gammas, self._discounts = powers, powers.astype(np.float32)
        columns = list(zip(schema.columns, ring.columns, strict=True))
        observations, others = columns[: schema.num_obs], columns[schema.num_obs :]
        plain = [c for c in observations if not c[0].field.stack]
        steps = [c for c in others if c[0].field.every is None]
        stacked = [c for c in observations if c[0].field.stack]
        states = [(column, array, column.field.every) for column, array in others if column.field.every is not None]
        self._plain_parts, self._frame_parts, self._step_parts = (
            [self._parts(column.keys) for column, _ in chosen] for chosen in (plain, stacked, steps)
        )
        arrays = [array for _, array in plain + steps]
        self._outputs = Outputs(arrays, arena)
        self._gather = ring.gather(arrays, [0] * len(plain) + [1] * len(steps))
        self._plain = _Copies(plain, ring, arena)
        self._frames = Frames([c for c, _ in stacked], [array for _, array in stacked], ring, arena)
        self._states = [(every, _Copies([(column, array)], ring, arena)) for column, array, every in states]
        if not stacked:
            shown = self._plain_parts + self._step_parts
            self.kernel = self._gather.sequences(
                ring.kernel,
                item.steps,
                self._discounts,
                item.time_major,
                shown,
                [parts[0].keys for parts in shown].index(("reward",)),
                self._gammas,
                [Kept(column.keys, array, every) for column, array, every in states],
                item.step_ids,
                item._back,
                self._tells_first,
            )

    def _parts(self, keys: tuple[str, ...]) -> list[Part]:
        """List the parts of a column that a batch shows; of a step's field the first part is the field itself."""
        name, *rest = keys
        n, length = self._item.n_step, self._item.steps
        if name == "obs":
            parts = [("all_obs", 0, length + n), ("obs", 0, length), ("next_obs", n, n + length)]
        else:
            parts = [(name, 1, 1 + length)]
            if name in ("action", "reward"):
                parts += [(f"all_prev_{name}", 0, length + n), (f"prev_{name}", 0, length)]
        return [Part((part, *rest), begin, end) for part, begin, end in parts]

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the sequences that start at `slots`."""
        if self.kernel is not None:
            return self.kernel.items(slots)
        item = self._item
        listed = bool(self._frame_parts) or (item.step_ids and item.across_episodes)
        positions = item.steps + item.n_step
        outs = self._outputs.of(len(slots) * positions)
        kernel = self._ring.kernel
        plan, copies = self._gather.unroll(
            kernel, slots, item.steps, self._discounts, item.time_major, listed, outs, item._back
        )
        if item.time_major:
            plan = _time_first(plan, positions)
        axes = (positions, len(slots)) if item.time_major else (len(slots), positions)
        shaped = [array.reshape(*axes, *array.shape[1:]) for array in copies]
        plain = len(self._plain_parts)
        found = self._observations(shaped[:plain], plan) + self._between(shaped[plain:], plan)
        back = item._back - plan.lead
        for every, states in self._states:
            found += states.of(self._ring.state_rows(plan.ids - back * self._ring.lanes, every))
            for _, state in found[-1:]:
                state[back % every > 0] = 0  # not kept at this step, with which a stream begins
        fields = nested(found)
        fields.update(discount=plan.discount, terminated=plan.terminated, truncated=plan.truncated)
        fields.update(steps=plan.steps, mask=plan.mask)
        if self._tells_first:
            fields.update(first=plan.first)
        if item.step_ids:
            fields.update(step_ids=self._step_ids(plan))
        fields.update(ids=plan.ids)
        return sealed(fields, item.views)

    def _step_ids(self, plan: Unrolled) -> Array:
        """Return the ids of the steps, -1 at empty positions; across episodes boundary rows lie between them."""
        item, ring = self._item, self._ring
        length, first = item.steps, plan.ids[:, None]
        if item.time_major:
            first = first.T
        if item.across_episodes and plan.observed is not None:
            observed = plan.observed[:length] if item.time_major else plan.observed[:, :length]
            memory = ring.memory_rows(observed)
            blocks, _, block = ring.marks.shape
            rows = (memory - first // ring.lanes) % (blocks * block)
        else:
            rows = np.arange(-item._back, length - item._back).reshape((-1, 1) if item.time_major else (1, -1))
        return np.where(plan.mask, first + rows * ring.lanes, -1)

    def _observations(self, plain: list[Array], plan: Unrolled) -> list[Found]:
        """Return `all_obs`, with `obs` and `next_obs` as views of it; `next_obs` of its own if ends make it differ."""
        copied = plain + (self._frames.of(plan.observed)[0] if plan.observed is not None else [])
        found: list[Found] = []
        for parts, array in zip(self._plain_parts + self._frame_parts, copied, strict=True):
            found += self._shown(parts, array)
        if len(plan.apart):
            successors = [values for _, values in self._plain.of(plan.successors)]
            successors += self._frames.of(plan.successors)[0]
            for i, values in enumerate(successors):
                keys, array = found[3 * i + 2]
                found[3 * i + 2] = keys, _with(array, plan.apart, values)
        return found

    def _between(self, copied: list[Array], plan: Unrolled) -> list[Found]:
        """Return the steps' other fields; actions and rewards a second time, as the previous ones."""
        found: list[Found] = []
        for parts, array in zip(self._step_parts, copied, strict=True):
            (own,) = self._shown(parts[:1], array)
            if parts[0].keys == ("reward",) and self._item.n_step > 1:
                own = own[0], self._ring.fold_sequences(array, plan.steps, self._gammas, self._item.time_major)
            elif parts[0].keys == ("reward",):
                own = own[0], own[1].copy()
            previous = _with(array, plan.begins, 0) if len(parts) > 1 and len(plan.begins) else array
            found += [own, *self._shown(parts[1:], previous)]
        return found

    def _shown(self, parts: list[Part], array: Array) -> list[Found]:
        first = self._item.time_major
        return [(keys, array[begin:end] if first else array[:, begin:end]) for keys, begin, end in parts]


class _Copies:
    """Copies rows of some columns, in the shape of the list of rows."""

    def __init__(self, columns: list[tuple[Column, Array]], ring: Ring, arena: Arena) -> None:
        self._keys = [column.keys for column, _ in columns]
        arrays = [array for _, array in columns]
        self._outputs, self._gather = Outputs(arrays, arena), ring.gather(arrays, [0] * len(arrays))

    def of(self, rows: Int64) -> list[Found]:
        """Return each column's keys, and its values at the storage rows `rows`."""
        if not self._keys:
            return []
        arrays = self._outputs.taken(self._gather, [rows.reshape(-1)])
        shaped = [array.reshape(*rows.shape, *array.shape[1:]) for array in arrays]
        return list(zip(self._keys, shaped, strict=True))


def _time_first(plan: Unrolled, positions: int) -> Unrolled:
    """Transpose a plan so that time is the first axis."""
    items, length = plan.mask.shape
    lists = {name: np.ascontiguousarray(part.T) for name, part in plan._asdict().items() if np.ndim(part) == 2}
    apart, begins = _transposed(plan.apart, items, length), _transposed(plan.begins, items, positions)
    return plan._replace(**lists, apart=apart, begins=begins)


def _transposed(at: Int64, items: int, length: int) -> Int64:
    """Convert indices into `[items * length]` to indices into `[length * items]`."""
    b, t = np.divmod(at, length)
    return np.asarray(t * items + b)


def _with(array: Array, at: Int64, values: object) -> Array:
    """Copy `array`, `[M, N, ...]`, with `values` at the indices `at` of its first two axes."""
    changed = np.array(array, order="C")
    changed.reshape(-1, *array.shape[2:])[at] = values
    return changed
