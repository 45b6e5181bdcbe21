"""Environments for actors, which build them in processes of their own."""

from __future__ import annotations

from typing import Any

from dqn_toys import Signs


class Failing(Signs):
    """Breaks at its 30th step."""

    steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 30:
            raise ZeroDivisionError("the simulator fell over")
        return super().step(action)
