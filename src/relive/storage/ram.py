"""Plain memory of this process."""

from __future__ import annotations

from collections.abc import Mapping

from .._base import memory
from .._base.arrays import ArraySpec
from .._base.frozen import Frozen
from .._base.types import Array
from ..errors import ArgumentError, event, message


class Ram(Frozen, kw_only=True):
    """Keep the steps in this process's memory.

    Pages are reserved lazily: a buffer takes what has been written, not what it may grow to. A buffer that could never
    fit in the machine's memory is refused when it is built, with the bytes per field.

    >>> import relive
    >>> relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000, storage=relive.Ram())
    ReplayBuffer(0 of 1000 steps, num_envs=1, Transitions(n_step=1, gamma=0.99), Uniform(), Ram(), 22.5 KB when full)
    """

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> _Memory:
        """Return zeroed arrays for every name of `spec`; see `Storage.open`."""
        sizes = dict.fromkeys((_PRIORITIES, _REST), 0)
        for name, wanted in spec.items():
            parts = {name.removeprefix("ring/"): wanted.dtype}
            if wanted.dtype.fields is not None:
                parts = {key: part for key, (part, *_) in wanted.dtype.fields.items()}
            rows = wanted.nbytes // max(wanted.dtype.itemsize, 1)
            for key, part in parts.items():
                rest = _PRIORITIES if key.startswith("sampler/") else _REST
                shown = f"`{key[2:]}`" if key.startswith("$.") else rest
                sizes[shown] = sizes.get(shown, 0) + rows * part.itemsize
        needed, limit = sum(sizes.values()), memory.available_bytes()
        if needed > limit:
            listed = ", ".join(
                f"{name} {size:,}" for name, size in sorted(sizes.items(), key=lambda item: -item[1]) if size
            )
            remedy = (
                "lower `capacity`, or store smaller fields: images as `uint8`, stacked frames by `Field(stack=...)`"
            )
            wanted_bytes = f"at most {limit:,} bytes, the machine's memory"
            raise ArgumentError(message(wanted_bytes, f"{needed:,} bytes ({listed})", "$.capacity", remedy))
        try:
            arrays = memory.zeros_together([(wanted.shape, wanted.dtype) for wanted in spec.values()])
        except (MemoryError, OSError) as error:
            what = f"Could not allocate {needed:,} bytes ({error})"
            raise ArgumentError(event(what, "$.capacity", "lower `capacity`")) from None
        return _Memory(dict(zip(spec, arrays, strict=True)))


_PRIORITIES, _REST = "the sampler", "flags and counters"


class _Memory:
    """New arrays, which only this process sees."""

    fresh = private = True

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    def host(self, name: str) -> Array:
        return self._arrays[name]
