"""Plain memory of this process."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _memory
from .._types import Array
from ..errors import ArgumentError, message
from ._protocol import Spec


@dataclass(frozen=True, kw_only=True)
class Ram:
    """Keep the steps in this process's memory.

    Pages are reserved lazily: a buffer takes what has been written, not what it may grow to. A buffer that could never
    fit in the machine's memory is refused when it is built, with the bytes per field.

    >>> import relive
    >>> relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000, storage=relive.Ram())
    ReplayBuffer(0 of 1000 steps, num_envs=1, Transitions(n_step=1, gamma=0.99), Uniform(), Ram(), 21.1 KB when full)
    """

    def allocate(self, spec: Spec) -> dict[str, Array]:
        """Return zeroed arrays for every name of `spec`; see `Storage.allocate`."""
        sizes: dict[str, int] = {}
        for name, (shape, dtype) in spec.items():
            parts = {name: dtype} if dtype.fields is None else {key: part for key, (part, *_) in dtype.fields.items()}
            sizes |= {key: math.prod(shape) * part.itemsize for key, part in parts.items()}
        limit = _memory.available_bytes()
        if sum(sizes.values()) > limit:
            fields = ", ".join(f"{name} {size:,}" for name, size in sorted(sizes.items(), key=lambda item: -item[1]))
            got = f"{sum(sizes.values()):,} bytes ({fields})"
            remedy = "lower `capacity`, or store smaller fields"
            raise ArgumentError(message(f"at most {limit:,} bytes, the machine's memory", got, "$.capacity", remedy))
        try:
            return {name: _memory.zeros(shape, dtype) for name, (shape, dtype) in spec.items()}
        except (MemoryError, OSError) as error:
            got = f"a refusal of {sum(sizes.values()):,} bytes ({error})"
            raise ArgumentError(message("memory from the system", got, "$.capacity", "lower `capacity`")) from None
