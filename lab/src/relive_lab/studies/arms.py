"""The arms that soft actor-critic is compared in: what is drawn, and which loss all of them learn with."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from relive.errors import ArgumentError, message


@dataclasses.dataclass(frozen=True)
class Arm:
    """An arm: what reports call it, what it does differently from uniform replay, in words and as settings."""

    label: str
    subject: str = ""
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    signal: str = ""


NOISY = "up to {share} of its signal is noise"
ARMS = {
    "uniform": Arm("uniform", "uniform replay"),
    "td": Arm("prioritized", "prioritization by TD error", {"use_per": True}, NOISY),
    "precision": Arm("precision", "prioritization by precision", {"use_per": True, "priority": "precision"}),
    "3-step": Arm("uniform, 3-step", "the 3-step target", {"n_step": 3}),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arms:
    """The arms to compare, and their common loss."""

    arms: tuple[str, ...] = ("uniform", "td")
    """Two or more of uniform, td (called prioritized in reports), precision, 3-step; compared with uniform, or else
    with the first."""
    loss: Literal["mse", "huber"] = "mse"
    """Critic loss of all arms."""
    huber_threshold: float = 0.3
    """Where Huber's loss becomes linear."""

    def chosen(self) -> dict[str, Arm]:
        """Return the arms by their labels, in the order given, or refuse them."""
        known = ", ".join(f"`{name}`" for name in ARMS)
        for name in self.arms:
            if name not in ARMS:
                raise ArgumentError(message(f"arms out of {known}", f"`{name}`", "--arms"))
        if len(self.arms) < 2:
            raise ArgumentError(message(f"two or more arms out of {known}", f"{len(self.arms)}", "--arms"))
        if len(set(self.arms)) < len(self.arms):
            twice = next(name for name in self.arms if self.arms.count(name) > 1)
            raise ArgumentError(message("every arm once", f"`{twice}` {self.arms.count(twice)} times", "--arms"))
        return {ARMS[name].label: ARMS[name] for name in self.arms}

    @property
    def baseline(self) -> str:
        """The label of the arm that the others are compared with."""
        return ARMS["uniform" if "uniform" in self.arms else self.arms[0]].label

    def settings(self, arm: Arm) -> dict[str, Any]:
        """Return the settings of a run that the arm and the loss decide."""
        return {**arm.changes, "critic_loss": self.loss, "huber_threshold": self.huber_threshold}
