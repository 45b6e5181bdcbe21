"""Arguments of the buffer's methods, checked and converted to the arrays that the ring and the samplers work on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec

import numpy as np

from .._base.check import integers, numbers
from .._base.types import Array, Bool, Bytes, Float64, Int64
from .._ring.plans import State, Window
from ..errors import ArgumentError, NotEnoughData, PriorityError, StaleId, message
from ..samplers import Sampler
from ..schema import Schema

# Compared by identity on the hot path: comparing dtypes costs more than a small kernel.
_INT64 = np.dtype(np.int64)

# What an object has that can be a choice of this kind, and what the base class of samplers has a default of.
_DEFAULTS = ("prioritizes", "spec")
METHODS = {
    "item": ("window", "check", "bind"),
    "sampler": ("index", "replacement", *_DEFAULTS),
    "storage": ("open",),
    "limiter": ("least", "most"),
}

_EXAMPLES = {
    "item": "such as `relive.Transitions(n_step=3)` or `relive.Sequences(80)`",
    "sampler": "such as `relive.Prioritized()`",
    "storage": "such as `relive.Mapped(path)`, which keeps the steps in a file",
}
_KINDS = ("Uniform", "Prioritized", "Recent", "Once", "Blend", "Transitions", "Sequences", "Hindsight", "Ram", "Shared")

_Given = ParamSpec("_Given")


# Arguments of other libraries' buffers, and where relive has them; `?` stands for the value.
_ELSEWHERE = {
    **dict.fromkeys(("n_step", "n_steps", "nstep"), "`item=relive.Transitions(n_step=?)`"),
    "gamma": "`item=relive.Transitions(gamma=?)`",
    **{name: f"`sampler=relive.Prioritized({name}=?)`" for name in ("alpha", "beta", "eps")},
    "prioritized": "`sampler=relive.Prioritized()`",
    "batch_size": "`buffer.sample(?)`",
    **dict.fromkeys(("buffer_size", "max_size", "memory_size", "size"), "`capacity=?`"),
    **dict.fromkeys(("n_envs", "env_num"), "`num_envs=?`"),
    **dict.fromkeys(("sequence_length", "seq_len", "burn_in"), "`item=relive.Sequences(length=..., burn_in=...)`"),
    **dict.fromkeys(("frame_stack", "stack_num", "stack"), "`relive.Field(shape, dtype, stack=?)` in the schema"),
    "device": "`batch.torch(?)`, or `relive.DeviceBuffer(schema, capacity, device=?)`",
}

# Attributes of other libraries' buffers, and relive's way to the same.
_OTHER_NAMES = {
    **dict.fromkeys(("push", "append", "store", "insert", "put", "remember"), "buffer.add(obs=..., action=..., ...)"),
    **dict.fromkeys(("add_batch", "add_all", "load_transitions"), "buffer.extend(obs=..., action=..., ...)"),
    **dict.fromkeys(("size", "pos", "ptr", "n_entries", "get_stored_size"), "len(buffer)"),
    **dict.fromkeys(("full", "is_full"), "len(buffer) == buffer.capacity"),
    **dict.fromkeys(("get", "get_batch", "get_item"), "buffer.read(ids)"),
    **dict.fromkeys(("get_all", "get_all_transitions", "sample_all"), "buffer.batches(batch_size)"),
    **dict.fromkeys(("reset", "empty"), "buffer.clear()"),
    "update_priority": "buffer.update_priorities(batch.ids, td_error)",
    **dict.fromkeys(("state_dict", "dump", "dumps"), "buffer.save(path)"),
    **dict.fromkeys(("load", "loads", "load_state_dict"), "relive.load(path)"),
}


def absent(buffer: object, name: str) -> NoReturn:
    """Raise the error of an attribute that a buffer lacks, with relive's name for it."""
    from difflib import get_close_matches  # only for an error

    kind = type(buffer).__name__
    near = [] if name.startswith("_") else get_close_matches(name, dir(type(buffer)), 1, 0.7)
    meant = _OTHER_NAMES.get(name) or (f"buffer.{near[0]}" if near else "")
    raise AttributeError(f"{kind!r} object has no attribute {name!r}" + (f": use `{meant}`" if meant else ""))


def hinting(construct: Callable[_Given, None]) -> Callable[_Given, None]:
    """Decorate a constructor: given arguments of other libraries' buffers, it names what relive has for them.

    Python would refuse one of the keywords, and name no remedy.
    """

    @wraps(construct)
    def checked(*args: _Given.args, **choices: _Given.kwargs) -> None:
        space = args[2] if len(args) > 2 else choices.get("observation_space")
        if any(base.__module__.startswith(("gymnasium.spaces", "gym.spaces")) for base in type(space).__mro__):
            wanted, got = "a `Schema` and a capacity", "the arguments of Stable-Baselines3's buffers"
            raise ArgumentError(message(wanted, got, "ReplayBuffer", "use `relive.sb3.ReplayBuffer`"))
        for name in choices.keys() - construct.__annotations__.keys():
            from difflib import get_close_matches  # only for an error

            given, near = repr(choices[name]), get_close_matches(name, construct.__annotations__, 1)
            remedy = f"say {_ELSEWHERE[name].replace('?', given)}" if name in _ELSEWHERE else None
            wanted = "the arguments of `relive.ReplayBuffer`"
            remedy = remedy or (f"did you mean `{near[0]}`?" if near else "`help(relive.ReplayBuffer)` has them")
            raise ArgumentError(message(wanted, f"`{name}={given}`", f"ReplayBuffer({name})", remedy))
        construct(*args, **choices)

    return checked


def choice(value: Any, default: Any, role: str, at: str) -> Any:
    if value is None:
        return default
    lacking = next((name for name in METHODS[role] if isinstance(value, type) or not hasattr(value, name)), None)
    if lacking is not None:
        text = f"it has no `{lacking}`; the base class `relive.samplers.Sampler` has a default"
        remedy = text if lacking in _DEFAULTS else _calling(value) or _EXAMPLES.get(role)
        raise ArgumentError(message(f"an object like `{default!r}`", f"`{value!r}`", at, remedy))
    return value


def _calling(value: Any) -> str | None:
    """Compose the remedy for a class, or its name, in the place of an object."""
    name = value.__name__ if isinstance(value, type) else value if isinstance(value, str) else ""
    known = next((kind for kind in _KINDS if kind.lower() == name.lower()), None)
    if known is None:
        return f"call it: `{name}()`" if isinstance(value, type) else None
    return f"call it: `relive.{known}()`" if isinstance(value, type) else f"say `relive.{known}()`"


def _plain(array: Array) -> bool:
    return array.flags.c_contiguous and array.flags.aligned


def ids_of(ids: Any, at: str) -> Int64:
    if type(ids) is np.ndarray and ids.dtype is _INT64 and ids.ndim == 1 and _plain(ids):
        return ids
    return integers(ids, at, "give ids, such as `batch.ids`")


def td_errors(value: Any, ids: Int64) -> Float64:
    """Check TD errors, one per id: `[B]`, or `[B, 1]` as a network's output has it; tensors are detached."""
    detach = None if type(value) is np.ndarray else getattr(value, "detach", None)
    errors = numbers(detach() if callable(detach) else value, "$.td_error")
    if errors.shape == (*ids.shape, 1):
        errors = errors[:, 0]
    if errors.shape != ids.shape:
        wanted = f"TD errors of shape `{ids.shape}`, one per id"
        raise PriorityError(message(wanted, f"shape `{errors.shape}`", "$.td_error"))
    return errors


def stale(ids: Int64, states: Bytes, bad: Bool, at: str, wanted: str = "drawable items") -> StaleId:
    """Make the error about those of `ids` that cannot be used, with the reason for the first."""
    first = int(np.flatnonzero(bad)[0])
    got = f"`{ids[first]}`{State(int(states[first])).words} ({int(bad.sum())} of {len(ids)})"
    return StaleId(message(f"ids of {wanted}", got, at))


def shortage(
    least: int,
    items: int,
    drawable: int,
    waiting: int,
    span: int,
    stored: int,
    at: str = "ReplayBuffer.sample",
    used: bool = False,
) -> NotEnoughData:
    """Make the error of a draw of `least` items when `drawable` of `items` can be drawn and `waiting` steps wait.

    `stored`: all steps.

    `used`: the others were drawn already.
    """
    if items > drawable and used:
        remedy = f"{drawable} of {items} items are left; a `RateLimiter` makes `sample` wait for new ones"
    elif items > drawable:
        remedy = f"{items - drawable} of {items} items have priority 0"
    elif items:
        remedy = "add more steps, lower `batch_size`, or draw with replacement"
    elif not stored:
        remedy = "the buffer is empty: add steps first; `can_sample` says when there are enough"
    else:
        remedy = f"{waiting} of {span} steps of the first {span}-step window are stored"
        if waiting == span:
            remedy += ", but not what follows them: give `next_obs=` with each step, or add the next one"
        elif waiting:
            remedy += "; `can_sample` says when there are enough"
    wanted = f"at least {least} drawable item{'s' if least > 1 else ''}"
    return NotEnoughData(message(wanted, f"{drawable}", at, remedy))


def identity(schema: Schema, lanes: int, rows: int, steps: int, window: Window, sampler: Sampler) -> bytes:
    """Hash the choices that the meaning of a buffer's arrays depends on; a storage refuses those of another digest."""
    import hashlib  # slow to load; what makes the generator has loaded it

    kept = "" if steps == rows else f" for {steps} steps"
    text = f"relive 1: {schema!r}, {lanes} lanes of {rows} rows{kept}, {window!r}, {sampler!r}"
    return hashlib.sha256(text.encode()).digest()


def readable(nbytes: int) -> str:
    """Format a size in bytes with its unit."""
    size = float(nbytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def too_many(most: int, items: int, at: str) -> ArgumentError:
    """Make the error of a draw of `items` items, of which `most` fit in memory."""
    return ArgumentError(message(f"at most {most} items, as many as fit in memory", f"`{items}`", at))
