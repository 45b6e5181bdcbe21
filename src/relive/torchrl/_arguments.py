"""Arguments of TorchRL's buffers: those that mean nothing new are taken, the others are refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torchrl import data as torchrl
from torchrl.data.replay_buffers import samplers, writers

from ..errors import ArgumentError, message

_AT = "TensorDictReplayBuffer"
_BUFFERS: tuple[Any, ...] = (
    torchrl.ReplayBuffer,
    torchrl.TensorDictReplayBuffer,
    torchrl.PrioritizedReplayBuffer,
    torchrl.TensorDictPrioritizedReplayBuffer,
)
_PRIORITIES = "`sampler=relive.Prioritized(alpha=..., beta=...)`"
_REMEDIES = {
    "writer": "steps are overwritten lane by lane, the oldest first",
    "collate_fn": "samples are TensorDicts",
    "transform": "apply it to what `sample` returns, or to the environment",
    "transform_factory": "apply it to what `sample` returns, or to the environment",
    "prefetch": "draw in a thread of your own; all methods of a sampler take their turn",
    "pin_memory": "call `.pin_memory()` on what `sample` returns",
    "dim_extend": "`extend` takes `[T]`, or `[environments, T]` as collectors give it",
    "generator": "`seed=` takes an integer or a `numpy.random.Generator`",
    "checkpointer": "`dumps` and `state_dict` save everything",
    "shared": "`relive.ReplayBuffer` with `storage=relive.Shared(name)` has writers in other processes",
    "alpha": _PRIORITIES,
    "beta": _PRIORITIES,
    "eps": _PRIORITIES,
    "reduction": "of several TD errors of an item the largest counts",
}
# Writers and samplers that TorchRL's buffers have unless others are given.
_WRITERS = (writers.RoundRobinWriter, writers.TensorDictRoundRobinWriter)
_IN_RAM = {"LazyTensorStorage", "ListStorage", "LazyStackStorage", "TensorStorage"}
# What a storage may be told besides, by the values that change nothing of what is drawn; others are refused by name.
_USUAL: dict[str, tuple[Any, ...]] = {"shared_init": (False,), "ndim": (1, 2), "stack_dim": (0,)}


def check_elsewhere(given: Mapping[str, Any]) -> None:
    """Check that arguments of TorchRL's that relive's class lacks have the values that they have by default.

    Raises:
        ArgumentError: One has another value, or is none of TorchRL's.
    """
    for name, value in given.items():
        defaults = [
            parameter.default
            for kind in _BUFFERS
            for parameter in [inspect.signature(kind.__init__).parameters.get(name)]
            if parameter is not None and parameter.default is not inspect.Parameter.empty
        ]
        # Where nothing is the default, every kind of nothing is: `prefetch=0`, `compilable=None`.
        if any(value is default or (not default and _nothing(value)) or _same(value, default) for default in defaults):
            continue
        if name == "writer" and type(value) in _WRITERS:
            continue
        wanted = f"`{name}={defaults[0]!r}`, as by default" if defaults else "an argument that is here"
        raise ArgumentError(message(wanted, f"`{name}`", _AT, _REMEDIES.get(name, "leave it out")))


def _nothing(value: Any) -> bool:
    return value is None or (isinstance(value, bool | int | str | tuple | list | dict) and not value)


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and isinstance(value, bool | int | float | str) and bool(value == default)


def own_sampler(sampler: Any) -> Any:
    """Return a sampler of relive's; None for TorchRL's default one.

    Raises:
        ArgumentError: It is another one of TorchRL's.
    """
    made = sampler() if inspect.isclass(sampler) and issubclass(sampler, samplers.RandomSampler) else sampler
    if type(made) is samplers.RandomSampler:
        return None
    kind = made if inspect.isclass(made) else type(made)
    if issubclass(kind, samplers.Sampler):
        remedy = f"{_PRIORITIES}, and `Sequences` of a `relive.ReplayBuffer` for slices"
        raise ArgumentError(message("a sampler of relive's", f"TorchRL's `{kind.__name__}`", f"{_AT}(sampler)", remedy))
    return made


def capacity_of(capacity: int | None, storage: Any) -> int:
    """Return how many steps a storage of TorchRL would have held.

    Raises:
        ArgumentError: It is none of these, has steps, or would keep them elsewhere than in RAM.
    """
    at = f"{_AT}(storage)"
    if capacity is not None:
        raise ArgumentError(message("`capacity` or `storage`", "both", at))
    made = storage if hasattr(storage, "max_size") or not callable(storage) else storage()
    size = getattr(made, "max_size", None)
    if not isinstance(made, torchrl.Storage) or not isinstance(size, int):
        wanted = "a storage of TorchRL with a `max_size`, or a function that makes one"
        raise ArgumentError(message(wanted, f"`{type(made).__name__}`", at, "`capacity=` says how many steps it holds"))
    name = type(made).__name__
    if name not in _IN_RAM:
        in_ram = f"`LazyTensorStorage({size})` keeps them in RAM"
        remedy = f"{in_ram}; a `relive.ReplayBuffer` with `storage=relive.Mapped(path)` keeps them in a file"
        raise ArgumentError(message("a storage that keeps steps in RAM", f"`{name}`", at, remedy))
    if size > 2**48:
        raise ArgumentError(message("a storage with a `max_size`", "one without", at, f"`{name}(max_size)`"))
    device = getattr(made, "device", None)
    if device not in (None, "auto") and torch.device(device).type != "cpu":
        remedy = f'`LazyTensorStorage({size})`, and `device="{device}"` for where samples go'
        raise ArgumentError(message("a storage that keeps steps in RAM", f"one on `{device}`", at, remedy))
    for option, usual in _USUAL.items():
        value = getattr(made, option, usual[0])
        if value not in usual:
            raise ArgumentError(message(f"`{option}={usual[0]!r}`", f"`{value!r}`", at, "steps of one process, in RAM"))
    if len(made):
        raise ArgumentError(message("an empty storage", f"one of {len(made)} steps", at, "`extend` adds them"))
    return size
