"""An item of a save whose class is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._base.frozen import Frozen
from ..errors import ArgumentError, message
from ..items import Item

if TYPE_CHECKING:
    from .._base.memory import Arena
    from .._base.types import Int64
    from .._ring.plans import Window
    from .._ring.ring import Ring
    from ..schema import Schema


class Undrawn(Frozen, Item):
    """An item of a save that only its author's code can make: what it needs of the steps is saved, how it draws is not.

    A buffer with it can be filled and saved, and is described as the one that was saved.

    Args:
        facts: How `described` described the item.
        needs: Its window.
    """

    facts: dict[str, Any]
    needs: Window

    def window(self, schema: Schema) -> Window:
        """Return the window that was saved."""
        return self.needs

    def check(self, schema: Schema, rows: int) -> None:
        """Refuse rows that a whole item does not fit in; the rest was checked when the buffer was made."""
        needed = self.needs.span + self.needs.lookback
        if needed > rows:
            raise ArgumentError(
                message(f"an item of at most {rows} steps, the rows of a lane", f"{needed}", "$.window")
            )

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Undrawn:
        """Return itself: nothing can be drawn, so nothing is prepared."""
        return self

    def expand(self, slots: Int64, rng: np.random.Generator) -> NoReturn:
        """Refuse every draw."""
        raise ArgumentError(message("an item that can be drawn", f"`{self.facts['kind']}`", "$.item"))
