"""The access of a buffer that one process has alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._base.types import Bool, Int64
from .._ring.plans import Window
from .._ring.ring import Ring
from ..samplers import Index
from ..schema import Schema
from .core import Choose, ChosenItems

if TYPE_CHECKING:
    import numpy as np

    from ..items import Fields
    from .adding import LaneClaims
    from .core import Core


class Alone:
    """The access of the only process that has the arrays: nothing changes between a look and a copy."""

    busy: Sequence[int] = ()
    alone = True
    shares_sampler = forked = False
    may_write = True

    def __init__(self, window: Window, keeps: Sequence[str]) -> None:
        self.window, self.keeps = window, keeps

    def shared(self, lanes: Int64) -> Bool:
        return lanes < 0

    def bind(self, ring: Ring) -> LaneClaims | None:
        return None

    def seen(self, schema: Schema, window: Window, ring: Ring) -> Ring:
        return ring

    def following(self, index: Index) -> Index:
        return index

    def refreshing(self, refresh: Callable[[], int]) -> Callable[[], int]:
        return refresh

    def updating(self, update: Callable[[object, object], bool] | None) -> Callable[[object, object], bool] | None:
        return update

    def draw(self, core: Core, n: int, beta: float | None) -> Fields:
        rng = core.tally.rng
        draw = core.index.draw(n, rng, beta)
        fields = core.expander.expand(draw.slots, rng)
        fields["weights"] = draw.weights
        return fields

    def copied(self, core: Core, choose: Choose) -> ChosenItems:
        draw = choose()
        return ChosenItems(draw, core.expander.expand(draw.slots, core.tally.rng))

    def look(self) -> None: ...

    def take_in(self) -> None: ...

    def mend(self) -> None: ...

    def overtaken(self, ids: Int64) -> Bool | None:
        return None

    def gone(self, ids: Int64) -> Bool | None:
        return None

    def count(self, updates: int, stale: int) -> None: ...

    def keep(self, rng: np.random.Generator, counts: dict[str, int]) -> None: ...

    def still(self, take: Callable[[], Int64 | None]) -> None:
        take()

    def release(self) -> None: ...

    def unmoved(self, counters: Int64) -> None: ...

    def present(self) -> bool:
        return True

    def close(self) -> None: ...
