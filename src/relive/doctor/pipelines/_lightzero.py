"""LightZero's game buffer with priorities, with an episode for a segment; a stand-in where its source is not there."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np

from relive._base.types import Float64

from .._pipeline import Item
from ._loops import OneLane, Run, calls_of
from ._sources import imported
from ._stand_ins import Segments, Step


class Settings(dict[str, Any]):
    """A dict whose values are attributes, as `easydict` has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Segment(list[Step]):
    """A game segment; the buffer asks for its actions' number."""

    action_segment = property(lambda self: self)


_FRAMEWORK = {"BUFFER_REGISTRY": SimpleNamespace(register=lambda _: lambda kind: kind)}
_ABSENT: dict[str, Any] = {"ding.utils": _FRAMEWORK, "easydict": {"EasyDict": Settings}, "lzero": {}}
_PLAIN = {"env_type": "not_board_games", "action_type": "fixed_action_space", "reanalyze_outdated": False}
_CHOICES = {**_PLAIN, "use_priority": True, "priority_prob_alpha": 1, "priority_prob_beta": 1, "batch_size": 1}
_MODEL = SimpleNamespace(action_space_size=2, value_support_range=(), reward_support_range=())


class TheirSegments:
    """The calls of the stand-in, of LightZero's own class."""

    def __init__(self, module: Any, size: int) -> None:
        with contextlib.redirect_stdout(None):  # it prints
            choices = Settings(_CHOICES, replay_buffer_size=size, game_segment_length=100, model=_MODEL)
            self._buffer = module.MuZeroGameBuffer(choices)
        self.segments = self._buffer.game_segment_buffer

    def push(self, segment: list[Step]) -> None:
        """Add a segment, and remove the oldest ones, as its collector and its worker do."""
        meta = {"done": True, "priorities": None, "unroll_plus_td_steps": 0}
        self._buffer.push_game_segments([[segment], [meta]])
        self._buffer.remove_oldest_data_to_fit()

    def sample(self, n: int) -> list[tuple[Step, Any, float]]:
        """Draw positions, each with a handle and a weight."""
        segments, positions, index, weights, made = self._buffer._sample_orig_data(n)
        steps = [segment[at] for segment, at in zip(segments, positions, strict=True)]
        return [*zip(steps, zip(index, made, strict=True), weights, strict=True)]

    def update(self, handles: Any, priorities: Float64) -> None:
        """Set priorities, as its learner does after a batch."""
        index, made = zip(*handles, strict=True)
        self._buffer.update_priority([[index, None, made]], priorities)


class LightZero(OneLane):
    """LightZero's buffer with priorities, or a stand-in."""

    def _made(self, run: Run) -> Any:
        theirs = imported("lightzero", "lzero/mcts/buffer/game_buffer_muzero", _ABSENT)
        return TheirSegments(theirs, run.size) if theirs else Segments(run.size, self._repaired)

    def _fill(self, run: Run) -> None:
        segments = [Segment()]
        for call in calls_of(run):
            segments += [Segment()] * call.reset
            segments[-1].append(call.item(self._gamma))
            segments += [Segment()] * call.ends
        for segment in filter(len, segments):
            self._buffer.push(segment)

    def items(self) -> list[Item]:
        """Return every item that is stored."""
        return [Item(*step) for segment in self._buffer.segments for step in segment]

    def sample(self, n: int) -> list[Item]:
        """Draw items."""
        return [Item(*step)._replace(handle=at, weight=weight) for step, at, weight in self._buffer.sample(n)]

    def update(self, handles: Any, td_errors: Float64) -> None:
        """Update priorities; losses, which they are, are not negative."""
        self._buffer.update(handles, np.abs(td_errors))


class LightZeroSpring(LightZero):
    """A stand-in for it as it was from January to August 2026."""

    def _made(self, run: Run) -> Any:
        return Segments(run.size, self._repaired, timed=False)
