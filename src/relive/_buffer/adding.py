"""`add` and `extend` in Python: every call with the NumPy kernels, and with the native ones errors and rare types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

import numpy as np

from .._base import check
from .._base.check import lanes_of, raw_priorities
from .._base.narrow import as_array, kind_of
from .._base.types import Float64, Int64
from .._flow.call_lock import CallLock
from .._ring import kernels
from .._ring.lanes import NO_ENDS
from .._ring.ring import Ring
from .._schema.step_parser import ParsedStep, StepParser, check_discounts
from ..errors import event, message
from ..samplers import Sampler
from ..schema import Schema
from .notices import Notices, warn

if TYPE_CHECKING:
    from .._flow.limit import Limit


class Guard(Protocol):
    """Has to be asked before rows are overwritten; see `checkpoints/_copy_on_overwrite.py`.

    Attributes:
        limits: The `head` that each lane may reach before, int64 `[L]`.
    """

    limits: Int64

    def before(self, lanes: Int64, steps: int) -> None:
        """Prepare for a write of `steps` steps to each of `lanes`."""


class LaneClaims(Protocol):
    """Has to be asked before lanes are written; see `processes/_claims.py`."""

    def before(self, lanes: Int64) -> bool:
        """Claim those of `lanes` that have to be claimed before a write, or refuse; return whether any were claimed."""

    def resume(self) -> None:
        """Let the first writer of each lane continue its stream."""


class Adding:
    """Writes to a buffer's ring. It does not know the buffer, whose memory is so freed as soon as it is gone.

    Args:
        schema: The fields of a step.
        ring: Where it goes.
        refresh: Lets the sampler take in what changed.
        sampler: Which items are drawn; None: priorities are kept for readers.
        notices: The warnings that are due.
        lock: The lock of the buffer's calls.
        claims: The lanes that this process may write; None: all.

    A native kernel's call leaves to Python what is not legal, since the errors are here; calls that have a notice to
    say; and single values of rare types, which `StepParser.column` reads.

    Attributes:
        parsed: Calls whose values were read here, but for those that a native kernel left here for a notice.
    """

    def __init__(
        self,
        schema: Schema,
        ring: Ring,
        refresh: Callable[[], int],
        sampler: Sampler | None,
        notices: Notices,
        lock: CallLock,
        claims: LaneClaims | None = None,
    ) -> None:
        self._ring, self._sampler, self._notices, self._lock = ring, sampler, notices, lock
        self._refresh, self._claims = refresh, claims
        self._parser, self._discounted = StepParser(schema), schema.discount is not None
        self._all_lanes = np.arange(ring.lanes)
        self._native = False
        self._watching: Callable[[], Guard | None] = _unguarded
        self.parsed = 0

    def call(self, several: bool, limit: Limit | None = None) -> Callable[..., Int64]:
        """Return the kernel's fastest `add`, or `extend`; with a `limit` one that waits first where it has to."""
        fallback, room = self.extend if several else self.add, None
        if limit is not None:
            fallback, room = limit.before(self.call(several), several), limit.room
            if room is None:
                return fallback
        coerce = self._parser.column
        refresh = self._refresh if self._sampler is None or self._sampler.prioritizes else None
        lock = self._lock.reentrant
        made = kernels.active().adding(self._ring.kernel, lock, coerce, refresh, fallback, several, room)
        self._native = made != fallback
        return _checking(made) if self._discounted and self._native else made

    @property
    def slow(self) -> int:
        """Calls in which Python had to read a value."""
        return self.parsed + self._ring.kernel.asked

    def lanes(self, env_ids: Any) -> Int64:
        """Return the lanes of a call."""
        return self._all_lanes if env_ids is None else lanes_of(env_ids, self._ring.lanes)

    def watch(self, guard: Guard) -> None:
        """Ask `guard` before rows are overwritten, as long as a save has it."""
        self._watching = ref(guard)
        self._ring.kernel.limit(guard.limits)

    def cut(self, lanes: Int64) -> None:
        """Implement `ReplayBuffer.cut`."""
        with self._lock.alone():
            self._ask_guard(lanes, 1)
            self._ring.kernel.watched &= ~NO_ENDS  # streams end on purpose
            self._ring.cut(lanes)

    def clear(self) -> None:
        """Empty the ring; the caller has the lock."""
        if self._claims is not None:
            self._claims.before(self._all_lanes)
        self._ring.clear()

    def resume(self) -> None:
        """Let the next steps continue the streams that were loaded from a save."""
        if self._claims is not None:
            self._claims.resume()

    def add(self, *wrong: Any, env_ids: Any = None, priority: Any = None, **step: Any) -> Int64:
        """Implement `ReplayBuffer.add`."""
        _check_names(wrong, "add")
        if self._lock.taken():
            raise self._lock.refusal()
        lanes = self.lanes(env_ids)
        canonical = self._parser.step(step, (len(lanes),), 1).mapped(lambda array: array[:, None])
        priorities = raw_priorities(priority, (len(lanes),), self._sampler)
        return self.put(canonical, lanes, None if priorities is None else priorities[:, None])[:, 0]

    def extend(
        self, *wrong: Any, env_ids: Any = None, priority: Any = None, time_major: bool = False, **steps: Any
    ) -> Int64:
        """Implement `ReplayBuffer.extend`."""
        _check_names(wrong, "extend")
        lanes = self.lanes(env_ids)
        check.flag(time_major, "ReplayBuffer.extend(time_major)")
        lead = self._parser.lead(steps, len(lanes), time_major)
        canonical = self._parser.step(steps, lead.shape, 1 if lead.flat else 0).mapped(lead.lane_major)
        priorities = raw_priorities(priority, lead.shape, self._sampler)
        raw = None if priorities is None else lead.lane_major(priorities)
        return lead.as_given(self.put(canonical, lanes, raw))

    def put(self, step: ParsedStep, lanes: Int64, priority: Float64 | None) -> Int64:
        """Store steps that are parsed already, and return their ids.

        Args:
            step: Arrays `[L, T, ...]`.
            lanes: The lanes, `[L]`.
            priority: Raw priorities `[L, T]`, or None.
        """
        noticed = self._notices.say(self._ring)
        noticed |= self._notices.before(step, self._ring)
        with self._lock.alone():
            if priority is not None:
                # Earlier steps without a priority get the largest so far, which these steps may raise.
                self._refresh()
            guarded = self._ask_guard(lanes, step.terminated.shape[1])
            ids = self._ring.write(step.values, step.next_values, step.terminated, step.truncated, lanes, priority)
            self.parsed += not ((noticed or guarded) and self._native)
            return ids

    def _ask_guard(self, lanes: Int64, steps: int) -> bool:
        """Claim the lanes, and let the guard know which rows are about to be overwritten; whether that was needed."""
        claimed = self._claims is not None and self._claims.before(lanes)
        guard = self._watching()
        if guard is not None:
            guard.before(lanes, steps)
        elif self._watching is not _unguarded:
            self._watching = _unguarded
            self._ring.kernel.limit(None)
        return guard is not None or claimed


def _check_names(wrong: tuple[Any, ...], method: str) -> None:
    """Refuse values without a name."""
    if wrong:
        remedy = f"`buffer.{method}(obs=..., action=..., reward=..., next_obs=..., terminated=..., truncated=...)`"
        raise TypeError(message("each field by its name", f"{len(wrong)} without", f"ReplayBuffer.{method}", remedy))


def _checking(call: Callable[..., Int64]) -> Callable[..., Int64]:
    """Wrap a native kernel's call in a check of discounts, whose limits the kernel does not know."""

    def checked(*wrong: Any, **step: Any) -> Int64:
        check_discounts(step.get("discount"))
        return call(*wrong, **step)

    return checked


def finite(calls: tuple[Callable[..., Int64], Callable[..., Int64]]) -> tuple[Callable[..., Int64], ...]:
    """Wrap `add` and `extend` in a look at their floats, until one is not finite, which is said."""
    said = False

    def watched(call: Callable[..., Int64]) -> Callable[..., Int64]:
        def looking(*wrong: Any, **step: Any) -> Int64:
            nonlocal said
            found = None if said else next(_not_finite(step, ""), None)
            if found is not None:
                said = True
                text = event(f"{found[1]} of {found[2]} values are not finite", found[0], "they are stored as they are")
                warn(text)
            return call(*wrong, **step)

        return looking

    return tuple(map(watched, calls))


def _not_finite(given: object, at: str) -> Iterator[tuple[str, int, int]]:
    """Yield the path of each array with NaN or infinity, how many there are, and of how many."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield from _not_finite(value, f"{at}.{name}" if at else str(name))
        return
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # refused elsewhere
        array = as_array(given)
        if kind_of(array.dtype) in "fc":
            bad = int((~np.isfinite(array)).sum())
            if bad:
                yield at, bad, array.size


def _unguarded() -> None:
    """Do nothing, in place of a reference to a guard."""


SHADOWED = ("add", "extend", "sample", "update_priorities")


def shadows(buffer: object, name: str) -> bool:
    """Tell if a buffer's attribute for one of these methods comes from `shadow`, and not from a user."""
    wrapped = getattr(vars(buffer).get(name), "__wrapped__", None)
    return isinstance(wrapped, MethodType) and wrapped.__self__ == name


def shadow(buffer: object, name: str, call: Callable[..., Int64], method: Callable[..., Int64]) -> None:
    """Let `call`, which is not a method of `Adding`, stand for a buffer's `method`, whose frame would take time.

    It has the method's name, docstring and signature. A method that a subclass overrides stays.
    """
    if getattr(type(buffer), name) is not method or isinstance(call, MethodType):
        return
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(call, attribute, getattr(method, attribute))
    call.__wrapped__ = MethodType(method, name)  # type: ignore[attr-defined]  # `inspect.signature` looks there
    vars(buffer)[name] = call
