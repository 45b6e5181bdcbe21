"""What every sampler promises.

A *place* is an integer in `[0, capacity)` that stands for one stored step. The buffer turns places into ids and back,
so a sampler cannot confuse a step with the one that stood in its place a lap ago: it is told when a place loses its
item.
"""

from __future__ import annotations

from typing import Any, Protocol

from .._ring import Ring
from .._types import Bool, Float32, Float64, Int64


class Index(Protocol):
    """A sampler at work on one buffer: it knows which places can be drawn."""

    @property
    def drawable(self) -> int:
        """Places that a draw can return."""
        ...

    @property
    def listener(self) -> Any:
        """The kernel that a ring may tell of changes itself, one step at a time; None where `change` must be called."""
        ...

    def change(self, removed: Int64, added: Int64) -> None:
        """Forget `removed`, then know `added`; a place in both holds a new item."""
        ...

    def check(self, priority: Float64) -> None:
        """Refuse raw priorities of new steps that are not finite or negative, or all where they mean nothing."""
        ...

    def offer(self, places: Int64, priority: Float64 | None) -> None:
        """Take note of the checked raw priorities of new steps (None: none), before any of them becomes drawable."""
        ...

    def draw(self, n: int, rng: Any, beta: float | None, items: int) -> tuple[Int64, Float32]:
        """Return `n` of `items` places and their importance-sampling weights, using one call of `rng.random(n)`."""
        ...

    def update(self, places: Int64, td_error: Float64, keep: Bool | None) -> None:
        """Check all TD errors, then take new priorities from those that `keep` marks; the last of duplicates wins."""
        ...

    def priorities(self, places: Int64) -> Float64:
        """The raw priorities at `places`; 1 where there are none."""
        ...

    def report(self) -> dict[str, Any]:
        """What the sampler adds to a buffer's statistics."""
        ...


class Sampler(Protocol):
    """The frozen description of a sampler."""

    @property
    def replacement(self) -> bool:
        """Whether a draw may repeat an item."""
        ...

    @property
    def prioritizes(self) -> bool:
        """Whether priorities mean anything to it."""
        ...

    def index(self, ring: Ring) -> Index:
        """Return an empty index over the places of `ring`."""
        ...
