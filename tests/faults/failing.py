"""Calls to the system that fail from a given one on."""

from __future__ import annotations

from dataclasses import dataclass, field

from system_calls import Done, fault


@dataclass
class Failing:
    """Lets the `first` call fail and later ones, `most` of them; reads of rows do not count.

    Attributes:
        hit: The names of those that failed.
    """

    verdict: int | Done
    first: int
    most: float = 1
    hit: list[str] = field(default_factory=list)

    def __call__(self, name: str, number: int) -> int | Done | None:
        if number < self.first or name == "preadv" or len(self.hit) >= self.most:
            return None
        self.hit.append(name)
        return self.verdict


def failing(kind: str, first: int, k: int, most: float = 1) -> Failing:
    """Fail from the `k`-th call on; faults of a kind come in turn, beginning with the `first` one."""
    return Failing(fault(kind, k + first), k, most)
