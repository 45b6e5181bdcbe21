"""Windows around a step, of other offsets for each field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._base import check
from .._base.frozen import Frozen
from .._base.memory import Arena
from .._base.nests import nested, paths
from .._base.types import Array, Int64
from .._ring.plans import Window
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..schema import Column, Schema
from ._columns import Frames, check_reward, check_steps
from ._discounts import bound
from ._outputs import Outputs
from ._protocol import Item
from .transitions import Transitions, _Transitions, refuse_states

if TYPE_CHECKING:
    from .._ring.kernel_types import ExpansionKernel
    from ._protocol import Expander, Fields

Path: TypeAlias = tuple[str, ...]
Offsets: TypeAlias = tuple[int, ...]
# Fields in this order: of those of an observation or action the names, each with its offsets.
Listed: TypeAlias = tuple[Any, ...]
Found: TypeAlias = tuple[Path, Array]
_PADS = ("repeat", "zero")
_WANTED = {"reward": "integers, at least one", "extras": "a mapping from names of fields to offsets"}
_FARTHEST = 2**31


class Windows(Frozen, Item, kw_only=True):
    """Draw a window of steps around each anchor, with offsets of its own for each field, and a mask for each.

    `Windows(obs=(-1, 0), action=range(-1, 15))` gives `obs`, `[B, 2, ...]`, and `action`, `[B, 16, ...]`, of the steps
    at these offsets from the anchor, which `ids` names. `pad.obs` and `pad.action`, bool `[B, 2]` and `[B, 16]`, are
    True where the episode has no step: before its first one and after its last. The nearest step is shown there, or
    zeros (`pad="zero"`).

    A mapping gives the fields of an observation or an action offsets of their own: `obs={"front": (-1, 0)}` has the
    mask `pad.obs.front`. Fields without offsets are the anchor's own, `[B, ...]`.

    With `n_step`, items also have `next_obs`, `discount`, `terminated`, `truncated` and `steps`, and the `reward` is
    a sum, as `Transitions(n_step, gamma)` has them: a critic learns from the same items.

    An item starts at every step of an episode. It can be drawn as soon as the steps at all its offsets, and what
    follows them, are known, or the episode has ended; and until a step that it shows has been overwritten. So padding
    is at the ends of episodes only, never where a step is still to come, or gone. A cut counts as an end.

    Args:
        obs: Offsets, integers of any order: 0 is the anchor, 1 the step after it. None: of the anchor alone, and
            without an axis. Or a mapping from names of fields to offsets. Of stacked fields a step shows its stack.
        action: Likewise.
        reward: Offsets, or None.
        extras: Those of other fields, by name.
        pad: `"repeat"` or `"zero"`.
        n_step: Longest window of a target, >= 1; None: none.
        gamma: Discount per step, in [0, 1].

    Raises:
        ArgumentError: An argument outside these limits; when the buffer is built, fields that the schema lacks, a
            window longer than a lane, and what `Transitions` refuses.

    Source: LeRobot's `delta_timestamps` (Cadene et al. 2024); windows of observations and actions as in Chi et al.,
    "Diffusion Policy", RSS 2023.

    >>> import numpy as np, relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 100, item=Windows(obs=(-1, 0), action=range(3)))
    >>> time, no = np.arange(4.0), np.zeros(4, bool)
    >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=time == 3, truncated=no)
    >>> batch = buffer.read(ids[[0, 2]])
    >>> batch.obs.tolist(), batch.action.tolist()
    ([[0.0, 0.0], [1.0, 2.0]], [[0.0, 1.0, 2.0], [2.0, 3.0, 3.0]])
    >>> batch.pad.obs.tolist(), batch.pad.action.tolist()
    ([[True, False], [False, False]], [[False, False, False], [False, False, True]])
    """

    obs: Iterable[int] | Mapping[str, Any] | None = None
    action: Iterable[int] | Mapping[str, Any] | None = None
    reward: Iterable[int] | None = None
    extras: Mapping[str, Any] | None = None
    pad: str = "repeat"
    n_step: int | None = None
    gamma: float = 0.99

    def __post_init__(self) -> None:
        for name in ("obs", "action", "reward", "extras"):
            given, at = getattr(self, name), f"Windows({name})"
            if given is not None:
                listed = _listed(given, at)
                if name in ("reward", "extras") and isinstance(listed[0], int) is (name == "extras"):
                    wanted = (
                        "integers, at least one" if name == "reward" else "a mapping from names of fields to offsets"
                    )
                    raise ArgumentError(message(wanted, f"`{given!r}`", at))
                object.__setattr__(self, name, listed)
        if not self._given:
            wanted = "offsets of at least one field"
            raise ArgumentError(message(wanted, "none", "Windows", "draw `Transitions(...)`, or give `obs=(0,)`"))
        check.one_of(self.pad, _PADS, "Windows(pad)")
        if self.n_step is not None:
            object.__setattr__(self, "n_step", check.integer(self.n_step, "Windows(n_step)", minimum=1))
            if self.reward is not None:
                remedy = "leave out one of them"
                raise ArgumentError(message("`reward` or `n_step`", "both", "Windows(reward)", remedy))
        object.__setattr__(self, "gamma", check.real(self.gamma, "Windows(gamma)", low=0.0, high=1.0))

    def __repr__(self) -> str:
        facts = [f"{name}={_text(getattr(self, name))}" for name in ("obs", "action", "reward", "extras")]
        facts += [f"pad={self.pad!r}", f"n_step={self.n_step}", f"gamma={self.gamma}"]
        return f"Windows({', '.join(fact for fact in facts if not fact.endswith('=None'))})"

    @property
    def _given(self) -> dict[Path, Offsets]:
        """The offsets that were given, by the path of the fields that have them."""
        given = dict[Path, Offsets]()
        for above, name in ((("obs",), "obs"), (("action",), "action"), (("reward",), "reward"), ((), "extras")):
            listed: Any = getattr(self, name)
            given.update(() if listed is None else _walk(above, listed))
        return given

    @property
    def _target(self) -> Transitions:
        """The transitions that an item with `n_step` has besides."""
        return Transitions(n_step=self.n_step or 1, gamma=self.gamma)

    def window(self, schema: Schema) -> Window:
        """Require the steps at all offsets, those of targets, and older frames of what is shown."""
        reach, given = list[int](), self._given
        for column in schema.columns:
            offsets = _of(given, column.keys)[1] or (0,)
            reach.append(max(0, -min(offsets)) + column.field.frames - 1)
        ahead = max(0, *map(max, given.values()))
        several = any(len(offsets) > 1 for path, offsets in given.items() if path[0] == "action")
        return Window(span=max(ahead + 1, self.n_step or 1), lookback=max(reach), actions=several)

    def check(self, schema: Schema, steps: int) -> None:
        """Refuse offsets of fields that the schema lacks, windows longer than a lane, and state kept now and then."""
        for path in self._given:
            at = f"Windows({path[0] if path[0] in ('obs', 'action', 'reward') else 'extras'})"
            if not any(column.keys[: len(path)] == path for column in schema.columns):
                known = ", ".join(f"`{'.'.join(column.keys)}`" for column in schema.columns)
                raise ArgumentError(message(f"one of {known}", f"`{'.'.join(path)}`", at))
            kept = next((c for c in schema.columns if c.keys[: len(path)] == path and c.field.every), None)
            if kept is not None:
                wanted = "fields that have a value at every step's row"
                raise ArgumentError(message(wanted, f"`every={kept.field.every}`", kept.path, "leave its offsets out"))
        if self.n_step is not None and ("discount",) in self._given:
            remedy = "leave out one of them"
            raise ArgumentError(message("`discount` or `n_step`", "both", "Windows(extras)", remedy))
        if "pad" in schema.tree:
            wanted, remedy = "a schema without a field `pad`", "give the field another name"
            raise ArgumentError(message(wanted, "one with it", "$.pad", remedy))
        window = self.window(schema)
        parts = f" ({window.lookback} before the anchor and {window.span} from it on)"
        check_steps(window.span + window.lookback, steps, parts, "Windows(offsets)")
        check_reward(schema, self.n_step or 1)
        refuse_states(schema)

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`."""
        return _Windows(self, schema, ring, arena)


class _Windows:
    """Plans the rows of each list of offsets, and has all columns with it copied."""

    kernel: ExpansionKernel | None = None  # none for this schema, or with these kernels

    def __init__(self, item: Windows, schema: Schema, ring: Ring, arena: Arena) -> None:
        self._ring, self._repeat = ring, item.pad == "repeat"
        columns, given = list(zip(schema.columns, ring.columns, strict=True)), item._given
        shown = {path: [pair for pair in columns if _of(given, pair[0].keys)[0] == path] for path in given}
        self._groups = [_Group(path, given[path], pairs, ring, arena) for path, pairs in shown.items()]
        self._targets: Expander | None = None
        own = [pair for pair in columns if not _of(given, pair[0].keys)[1]]
        self._states = [(c.keys, array, c.field.every) for c, array in own if c.field.every]
        if item.n_step is not None:
            without = frozenset(c.keys for pairs in shown.values() for c, _ in pairs)
            make = partial(_Transitions, without=without)
            self._targets = bound(make, item._target, schema, ring, arena)
            self._states = []
        else:
            self._groups.append(_Group((), (0,), [pair for pair in own if not pair[0].field.every], ring, arena))
        targets: ExpansionKernel | None = getattr(self._targets, "kernel", None)
        if not (self._states or any(group.stacked for group in self._groups)) and bool(self._targets) is bool(targets):
            groups = self._groups
            places = [(place, *pair) for place, group in enumerate(groups) for pair in group.columns]
            gather = ring.gather([array for _, _, array in places], [place for place, _, _ in places])
            self.kernel = gather.around(
                ring.kernel,
                [column.keys for _, column, _ in places],
                [group.offsets for group in groups],
                [("pad", *group.path) if group.path else None for group in groups],
                self._repeat,
                targets,
            )

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the windows around `slots`."""
        if self.kernel is not None:
            return self.kernel.items(slots)
        targets = self._targets.expand(slots, rng) if self._targets is not None else {"ids": self._ring.ids(slots)}
        ids = targets.pop("ids")
        found, masks = list[Found](), list[Found]()
        for group in self._groups:
            rows, pad = self._ring.around(slots, group.offsets, self._repeat or group.stacked)
            found += group.of(rows, None if self._repeat else pad)
            masks += [(("pad", *group.path), pad)] if group.path else []
        found += [(keys, array[self._ring.state_rows(ids, every)]) for keys, array, every in self._states]
        return nested([*paths(targets), *found, *masks, (("ids",), ids)])


class _Group:
    """The columns with one list of offsets.

    Args:
        path: The path of the fields that have them, empty for those without any, which are shown at the anchor.
        offsets: The offsets.
        columns: The columns and their arrays.
        ring: Where they are.
        arena: Memory for large batches.
    """

    def __init__(
        self, path: Path, offsets: Offsets, columns: list[tuple[Column, Array]], ring: Ring, arena: Arena
    ) -> None:
        self.path, self.offsets, self.columns = path, np.array(offsets, np.int64), columns
        plain = [pair for pair in columns if not pair[0].field.stack]
        stacked = [pair for pair in columns if pair[0].field.stack]
        self.stacked = bool(stacked)
        self._keys = [column.keys for column, _ in plain + stacked]
        arrays = [array for _, array in plain]
        self._outputs, self._gather = Outputs(arrays, arena), ring.gather(arrays, [0] * len(arrays))
        self._frames = Frames([c for c, _ in stacked], [array for _, array in stacked], ring, arena)

    def of(self, rows: Int64, zeroed: Array | None) -> list[Found]:
        """Copy what is at the storage rows, `[B, K]`, with zeros where `zeroed` says so."""
        arrays = [
            array.reshape(*rows.shape, *array.shape[1:])
            for array in self._outputs.taken(self._gather, [rows.reshape(-1)])
        ]
        arrays += self._frames.of(rows)[0]
        if zeroed is not None and self.stacked:
            for array in arrays:
                array[zeroed] = 0
        return list(zip(self._keys, arrays if self.path else [array[:, 0] for array in arrays], strict=True))


def _of(given: dict[Path, Offsets], keys: Path) -> tuple[Path, Offsets]:
    """Return the path, and the offsets, that were given for a column; both empty where none were."""
    known = (keys[:length] for length in range(1, len(keys) + 1))
    return next(((path, given[path]) for path in known if path in given), ((), ()))


def _walk(above: Path, listed: Listed) -> Iterator[tuple[Path, Offsets]]:
    if isinstance(listed[0], int):
        yield above, listed
    else:
        for name, child in listed:
            yield from _walk((*above, name), child)


def _listed(given: Any, at: str) -> Listed:
    """Return offsets as a tuple, and a mapping as a tuple of names and what they have, as saves know it.

    Raises:
        ArgumentError: It is neither.
    """
    wanted = "integers, at least one, or a mapping from names of fields to such"
    if isinstance(given, Mapping):
        given = tuple(given.items())
    try:
        parts = () if isinstance(given, str | bytes) else tuple(given)
    except TypeError:
        parts = ()
    if not parts:
        raise ArgumentError(message(wanted, f"`{given!r}`", at))
    if all(isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str) for part in parts):
        return tuple((str.__str__(name), _listed(child, at)) for name, child in parts)
    offsets = tuple(check.integer(part, at) for part in parts)
    if max(map(abs, offsets)) >= _FARTHEST:
        raise ArgumentError(message(f"offsets below {_FARTHEST}", f"`{max(offsets, key=abs)}`", at))
    return offsets


def _text(listed: Listed | None) -> str:
    if listed is None or not listed:
        return "None"
    if not isinstance(listed[0], int):
        return f"{{{', '.join(f'{name!r}: {_text(child)}' for name, child in listed)}}}"
    run = range(listed[0], listed[-1] + 1)
    return repr(run if len(listed) > 3 and tuple(run) == listed else listed)
