"""What every item promises."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from .._base.memory import Arena
from .._base.types import Int64
from .._ring.plans import Window
from .._ring.ring import Ring
from ..schema import Schema

Fields: TypeAlias = dict[str, Any]


class Expander(Protocol):
    """An item bound to one buffer's ring."""

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the fields of the items that start at the drawable `slots`, in the order that the batch is to have.

        `ids` is among them; the buffer adds `weights`. `rng` is its generator, for items that choose at random.
        """
        ...


class Item(Protocol):
    """The frozen description of an item; a frozen dataclass will do."""

    def window(self, schema: Schema) -> Window:
        """Which steps the item can start at, and which rows it needs around them."""
        ...

    def check(self, schema: Schema, steps: int) -> None:
        """Refuse, with the reason, a schema or a number of steps per lane that the item cannot work with."""
        ...

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`, whose columns are those of `schema.columns`."""
        ...
