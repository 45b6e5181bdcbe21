"""The protocol of items and their expanders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .._base.memory import Arena
from .._base.nests import leaves
from .._base.types import Int64
from .._ring.plans import Window
from .._ring.ring import Ring
from ..schema import Schema

Fields: TypeAlias = dict[str, Any]


class View(NamedTuple):
    """A field of a batch that is a view of another one; both are read-only.

    Attributes:
        whole: The other field, such as `all_obs`.
        begin: Where the view begins on its time axis.
        end: Where it ends.
    """

    whole: str
    begin: int
    end: int


class Expander(Protocol):
    """An item bound to one buffer's ring.

    One that the native `sample` can do without has an attribute `kernel`, which does what `expand` does in one call.
    """

    @abstractmethod
    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the fields of the items that start at the drawable `slots`, in the order that the batch is to have.

        `ids` is among them; the buffer adds `weights`. `rng` is its generator, for items that choose at random.
        """


class Item(Protocol):
    """The frozen description of an item; a frozen dataclass will do.

    The methods are required, the properties have defaults. A class that inherits from `Item` has these; for other
    classes they are filled in.
    """

    @abstractmethod
    def window(self, schema: Schema) -> Window:
        """Return the steps at which the item can start, and the rows that it needs around them."""

    @abstractmethod
    def check(self, schema: Schema, steps: int) -> None:
        """Refuse, with the reason, a schema or a number of steps per lane that the item cannot work with."""

    @abstractmethod
    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`, whose columns are those of `schema.columns`."""

    @property
    def time_major(self) -> bool | None:
        """True if time is the first axis of the fields that have one, False if the second; None without a time axis.

        Of an item with a time axis, fields that are kept at every k-th step, `first`, `ids` and `weights` have none.
        """
        return None

    @property
    def views(self) -> Mapping[str, View]:
        """The fields of a batch that may be views of others. Shards do not send them, and callers make them again.

        An expander makes them, and what they are views of, read-only: see `sealed`.
        """
        return {}


def sealed(fields: Fields, views: Mapping[str, View]) -> Fields:
    """Make the fields of a batch that share memory read-only."""
    for name in {*views, *(view.whole for view in views.values())}:
        for array in leaves(fields.get(name, ())):
            array.flags.writeable = False
    return fields
