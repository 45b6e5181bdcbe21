"""What every item promises."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from .._memory import Arena
from .._ring import Anchors, Ring
from .._types import Int64
from ..schema import Schema

Fields: TypeAlias = dict[str, Any]


class Expander(Protocol):
    """An item bound to one buffer's ring."""

    def expand(self, places: Int64) -> Fields:
        """Return the fields of the items that start at `places`, `ids` among them, in the order of a batch."""
        ...


class Item(Protocol):
    """The frozen description of an item."""

    def anchors(self, schema: Schema) -> Anchors:
        """Which steps the item can start at, and which rows it needs around them."""
        ...

    def check(self, schema: Schema, rows: int) -> None:
        """Refuse, with the reason, a schema or a number of rows per lane that the item cannot work with."""
        ...

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand places of `ring`, whose columns follow `schema`."""
        ...
