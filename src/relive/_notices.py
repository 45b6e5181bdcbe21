"""What is legal but probably not meant: each kind is said once per buffer, when nothing is locked or half done.

The kernels notice (see `Notice` in native/ring.hpp); this module finds the words. A notice about steps that were added
is said by the call that follows, so that a warning that is turned into an error refuses a call that has changed
nothing.
"""

from __future__ import annotations

import warnings
from math import ceil

import numpy as np

from ._kernels_numpy.ring import MANY_BOUNDARIES, MANY_CUTS, REPEATED_FINALS
from ._kernels_numpy.rows import FIRST, HEAD, STEP
from ._ring import Ring
from ._step_parser import Step
from .errors import ReliveWarning, message

UNBOOTSTRAPPED = 1
ALL = UNBOOTSTRAPPED | MANY_CUTS | REPEATED_FINALS | MANY_BOUNDARIES

_SKIP_RESETS = (
    "the step after an end only resets the environment (AutoresetMode.NEXT_STEP): leave it out, "
    "`live = np.flatnonzero(~ended); buffer.add(env_ids=live, obs=obs[live], action=action[live], ...); "
    "ended = terminated | truncated`, or let `relive.gymnasium.Recorder` add the steps"
)
_TAKE_FINALS = (
    "`next_obs` of a step that ends is the next episode's first observation (AutoresetMode.SAME_STEP): take the final "
    "`next_obs = obs.copy(); for lane in np.flatnonzero(terminated | truncated): next_obs[lane] = "
    'infos["final_obs"][lane]`, or let `relive.gymnasium.Recorder` add the steps'
)


class Notices:
    """Says each kind of notice once, as a `ReliveWarning`."""

    def __init__(self) -> None:
        self.due = 0

    def note(self, found: int) -> None:
        """Called by the kernel, under the buffer's lock."""
        self.due |= found

    def say(self, ring: Ring) -> None:
        """Say what is due; called by the buffer's methods before they do anything."""
        for kind in (MANY_CUTS, REPEATED_FINALS, MANY_BOUNDARIES):
            if self.due & kind and self._first_time(kind, ring):
                warnings.warn(self._text(kind, ring), ReliveWarning, stacklevel=3)
        self.due = 0

    def before(self, step: Step, ring: Ring) -> None:
        """Say, before they are stored, that truncated steps come without a final observation."""
        if step.next_values is not None:
            return
        lost = int((step.truncated & ~step.terminated).sum())
        if lost and self._first_time(UNBOOTSTRAPPED, ring):
            expected = "a final observation with every truncated step"
            remedy = "give `next_obs` with it; without, such items are drawn with discount 0"
            text = message(expected, f"{lost} without", "$.next_obs", remedy)
            warnings.warn(text, ReliveWarning, stacklevel=3)

    def _first_time(self, kind: int, ring: Ring) -> bool:
        first = bool(ring.kernel.watched & kind)
        ring.kernel.watched &= ~kind
        self.due &= ~kind
        return first

    @staticmethod
    def _text(kind: int, ring: Ring) -> str:
        tally = ring.tally()
        if kind == MANY_CUTS:
            return message(
                "`obs` to be the `next_obs` of the step before, byte for byte, while an episode goes on",
                f"{tally['cuts']} cuts in {tally['added']} steps",
                "$.obs",
                "observations change between calls (normalization, a reused array, missing end flags?)",
            )
        if kind == REPEATED_FINALS:
            return message(
                "every episode to begin with an observation of its own",
                f"{tally['repeats']} of {tally['ends']} that begin with the final observation of the episode before",
                "$.obs",
                _remedy(ring),
            )
        capacity = ring.capacity
        kept = tally["stored"] / max(1, int(np.minimum(ring.counters[:, HEAD], ring.rows).sum()))
        enough = ceil(capacity / kept) if kept else capacity
        return message(
            f"room for {capacity} steps",
            f"room for about {round(capacity * kept)}: final observations take rows, too",
            "ReplayBuffer(capacity)",
            f"`capacity={enough}` keeps as many steps as you asked for",
        )


def _remedy(ring: Ring) -> str:
    """Which mistake it is, where rewards tell: a step that only resets has reward 0."""
    firsts, others = [], []
    for lane in range(ring.lanes):
        head = int(ring.counters[lane, HEAD])
        memory = np.arange(max(0, head - ring.rows), head) % (ring.rows + 1)
        marks = ring.marks[lane, memory]
        step = (marks & STEP) > 0
        first = step & ((marks & FIRST) > 0)
        first[1:] &= ~step[:-1]
        first[:1] = False
        reward = ring.reward[lane * (ring.rows + 1) + memory]
        nonzero = (reward != 0).any(axis=tuple(range(1, reward.ndim)))
        firsts.append(nonzero[first])
        others.append(nonzero[step & ~first])
    after_ends, elsewhere = np.concatenate(firsts), np.concatenate(others)
    if after_ends.any():
        return _TAKE_FINALS
    if len(elsewhere) and elsewhere.mean() >= 0.9:
        return _SKIP_RESETS
    return f"either {_SKIP_RESETS}; or {_TAKE_FINALS}"
