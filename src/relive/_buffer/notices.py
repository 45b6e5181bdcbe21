"""Warnings about what is legal but probably a mistake: each kind once per buffer, when nothing is locked or half done.

The kernels find the reasons while they write (`Notice` in native/ring.hpp) and note them here. The call that follows
says them before it does anything, so that a warning that is turned into an error refuses a call that changed nothing.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from math import ceil

import numpy as np

from .._base.forks import importing
from .._flow.call_lock import CallLock
from .._ring.lanes import (
    HEAD,
    MANY_BOUNDARIES,
    MANY_CUTS,
    NO_ENDS,
    OTHER_PADDING,
    REPEATED_FINALS,
    STORED,
    TERMINATED,
    TRUNCATED,
    first_rows,
)
from .._ring.ring import Ring
from .._schema.step_parser import ParsedStep
from ..errors import ReliveWarning, event, message
from ..samplers import Report

UNBOOTSTRAPPED, NEVER_UPDATED = 1, 16
ALL = UNBOOTSTRAPPED | MANY_CUTS | REPEATED_FINALS | MANY_BOUNDARIES | NEVER_UPDATED | NO_ENDS | OTHER_PADDING

# The indented lines can be copied into a loop over a vector environment; a test does.
_SKIP_RESETS = """the step after an end only resets the environment and must not be stored. Store the others:

    ended = np.zeros(envs.num_envs, bool)  # before the loop
    live = np.flatnonzero(~ended)
    if live.size:
        buffer.add(env_ids=live, obs=obs[live], action=action[live], reward=reward[live], next_obs=next_obs[live],
                   terminated=terminated[live], truncated=truncated[live])
    ended = terminated | truncated
"""
_TAKE_FINALS = """`next_obs` of a step that ends is the next episode's first observation. Store the final one:

    final_obs = next_obs.copy()
    for lane in np.flatnonzero(terminated | truncated):
        final_obs[lane] = infos["final_obs"][lane]
    buffer.add(obs=obs, action=action, reward=reward, next_obs=final_obs, terminated=terminated, truncated=truncated)
"""
_RECORDER = "`relive.gymnasium.Recorder(envs, buffer)` does this for every autoreset mode."
DRAWS = 100  # without an update of priorities
_FEWEST = 3  # ends that have to repeat: one observation may be that of a new episode by chance
_OWN = {__name__, "relive._buffer.adding", "relive._flow.call_lock", "relive._buffer.drawing", "relive.buffer"}
_OWN |= {"relive.tianshou._vector", "relive.torchrl"}


class Notices:
    """Says each kind of notice once, as a `ReliveWarning`.

    Args:
        lock: The buffer's: what is due is noted inside of calls, and said outside of them.

    Attributes:
        numbers: `due`, and how often `drew_without_updates` was called, int64 `[2]`; a native kernel reads the first
            and counts in the second, but for the call number `DRAWS`.
    """

    def __init__(self, lock: CallLock) -> None:
        self.numbers = np.zeros(2, np.int64)
        self._lock = lock

    @property
    def due(self) -> int:
        """The kinds that were found and are still to be said."""
        return int(self.numbers[0])

    def note(self, found: int) -> None:
        """Note findings. The kernel calls this under the buffer's lock."""
        self.numbers[0] |= found

    def drew_without_updates(self, report: Callable[[], Callable[[], Report]]) -> None:
        """Count a draw by priorities of which none was ever updated. Called under the buffer's lock."""
        self.numbers[1] += 1
        if self.numbers[1] == DRAWS:
            quantiles = report()().priority_quantiles
            if quantiles and quantiles[0] == quantiles[-1]:  # otherwise the steps came with priorities
                self.numbers[0] |= NEVER_UPDATED

    def say(self, ring: Ring) -> bool:
        """Say what is due, and whether anything was; called by the buffer's methods before they do anything."""
        due = bool(self.due)
        for kind, text_of in _TEXTS.items():
            if self.due & kind and self._first_time(kind, ring):
                text = text_of(ring)
                if text:
                    warn(text)
                elif kind == REPEATED_FINALS:  # as yet; reading all rows once for every twice as many ends costs little
                    with self._lock.reentrant:
                        ring.kernel.enough_ends = 2 * ring.tally()["ends"]
                        ring.kernel.watched |= kind
        return due

    def before(self, step: ParsedStep, ring: Ring) -> bool:
        """Say of steps that are about to be stored that truncated ones have no final observation; whether it did."""
        if step.next_values is not None:
            return False
        lost = int((step.truncated & ~step.terminated).sum())
        if not lost or not self._first_time(UNBOOTSTRAPPED, ring):
            return False
        expected = "a final observation with every truncated step"
        remedy = "give `next_obs` with it; without, such items are sampled with discount 0"
        warn(message(expected, f"{lost} without", "$.next_obs", remedy))
        return True

    def _first_time(self, kind: int, ring: Ring) -> bool:
        with self._lock.reentrant:
            first = bool(ring.kernel.watched & kind)
            ring.kernel.watched &= ~kind
            self.numbers[0] &= ~kind
            return first


def warn(text: str) -> None:
    """Warn at the line that called the buffer."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__") in _OWN:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, ReliveWarning, stacklevel=level)


def _many_cuts(ring: Ring) -> str:
    tally = ring.tally()
    what = f"{tally['cuts']} of {tally['added']} steps do not continue their stream"
    remedy = (
        "in mid-episode `obs` has to be the `next_obs` of the step before, byte for byte; where it is not, the stream "
        "is cut. Usual causes: a forgotten `obs = next_obs`, observations normalized anew at every call, "
        "a reused array, missing `terminated` or `truncated`"
    )
    return event(what, "$.obs", remedy)


def _no_ends(ring: Ring) -> str | None:
    if (ring.marks & (TERMINATED | TRUNCATED)).any():
        return None
    what = f"No step of {ring.tally()['cuts']} streams is `terminated` or `truncated`"
    remedy = "give the flags of each `step`; where an environment is reset in mid-episode on purpose, call `cut()`"
    return event(what, "terminated", remedy)


def _other_padding(ring: Ring) -> str:
    other, what = ("zero", "zeros") if ring.stacked[0].repeat else ("first", "copies of the first frame")
    remedy = f'`pad="{other}"` in the schema stores nothing for them'
    return event(f"Stacks at the start of an episode are padded by {what}, which take rows", "obs", remedy)


def _repeated_finals(ring: Ring) -> str | None:
    with importing:
        from .resets import Resets

    resets, tally = Resets.of(ring), ring.tally()
    ends, repeats, which = tally["ends"], tally["repeats"], ""
    remedies = [] if resets.mode == "SAME_STEP" else [f"in autoreset mode NEXT_STEP {_SKIP_RESETS}"]
    if resets.mode != "NEXT_STEP":
        # The final observation of an episode that terminated is not used.
        ends, repeats = int(resets.bootstrapped.sum()), int((resets.bootstrapped & resets.repeated).sum())
        if ends < _FEWEST or repeats * 10 < ends * 9:
            return None
        which = "truncated "
        remedies.append(f"in autoreset mode SAME_STEP {_TAKE_FINALS}")
    what = f"{repeats} of {ends} {which}episodes begin with the final observation of the episode before"
    return event(what, "$.obs", "\n".join([*remedies, _RECORDER]))


def _many_boundaries(ring: Ring) -> str | None:
    tally = ring.tally()
    if tally["cuts"] * 10 > tally["added"]:
        return None  # it is cuts that take the rows: they have a notice of their own
    counters = ring.kernel.snapshot()
    used = counters[:, HEAD] - first_rows(counters, ring.rows)
    full = counters[used == ring.rows]
    if not len(full):
        return None  # they were cleared meanwhile
    kept = int(full[:, STORED].min())
    # As a share of the steps, with a hundredth to spare: the next episodes may be a little shorter.
    enough = min(ceil(100 * (ring.rows / max(kept, 1) - 1) + 1) / 100, 1.0)
    what = f"A lane keeps {kept} of {ring.steps} steps, since final observations use up its rows"
    return event(what, "ReplayBuffer(capacity)", f"`boundaries={enough:g}` reserves enough rows for them")


def _never_updated(ring: Ring) -> str:
    what = f"No priority was updated in {DRAWS} samples: all items are sampled alike"
    remedy = "give `update_priorities(batch.ids, td_error)` the TD errors of each batch, or sample with `Uniform()`"
    return event(what, "ReplayBuffer.sample", remedy)


# In the order in which they are said.
_TEXTS = {
    NEVER_UPDATED: _never_updated,
    MANY_CUTS: _many_cuts,
    NO_ENDS: _no_ends,
    OTHER_PADDING: _other_padding,
    REPEATED_FINALS: _repeated_finals,
    MANY_BOUNDARIES: _many_boundaries,
}
