"""Drawing ahead, in a background thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from .._base import check
from .._base.check import no_priorities
from .._flow.prefetch import DrawsAhead, Prefetched, converter
from .._flow.transform import Change, Transform
from ..batch import Batch
from .arguments import too_many
from .core import Core
from .drawing import count, draw, there

_AT = "ReplayBuffer.prefetch"


def prefetched(
    core: Core,
    batch_size: int,
    depth: int,
    to: str | None,
    device: Any,
    beta: float | None,
    transform: Change | None,
    sample: Callable[..., Batch] | None,
) -> Prefetched:
    """Make the iterator of `ReplayBuffer.prefetch`; `sample`: a subclass's own, which draws in its place."""
    size = check.integer(batch_size, f"{_AT}(batch_size)", minimum=1)
    ahead = check.integer(depth, f"{_AT}(depth)", minimum=1)
    if size > core.most:
        raise too_many(core.most, size, f"{_AT}(batch_size)")
    if beta is not None:
        beta = check.real(beta, f"{_AT}(beta)", low=0.0)
        if not core.sampler.prioritizes:
            raise no_priorities(core.sampler, f"{_AT}(beta)")
    change, convert = Transform(transform, f"{_AT}(transform)"), converter(to, device)
    source = ahead_of(core, size, beta, change, sample)
    return Prefetched(
        lambda stopped: convert(source.draw(stopped)),
        ahead,
        handed_out=source.handed_out,
        dropped=source.dropped,
        at=_AT,
    )


UNCHANGED = Transform(None, "")


def ahead_of(
    core: Core,
    size: int,
    beta: float | None = None,
    change: Transform = UNCHANGED,
    sample: Callable[..., Batch] | None = None,
) -> DrawsAhead:
    """Draw batches of `size` items of a buffer ahead, and change them; `sample`: a subclass's own."""
    if sample is not None:
        return _ahead_of_own(core, size, beta, change, sample)
    lock, limit = core.lock, core.limit
    account = None if limit is None else limit.drawing_ahead()
    waiting: deque[tuple[Batch, bytes]] = deque()  # for who keeps what is handed out

    def draw_ahead(stopped: Callable[[], bool]) -> Batch:
        since = None
        while True:
            with lock.alone():
                if limit is None or (limit.can_sample(size) and there(core, size)):
                    state = b"" if core.tally.keeping is None else core.tally.keeping.state_before(core)
                    seed = change.seed(core.tally.rng)
                    batch = draw(core, size, beta)
                    if account is not None:
                        account.items += size
                    break
            since = limit.wait_to_sample(size, since, stopped, there=partial(there, core, size))
        made = change(batch, seed)
        waiting.append((made, state))
        return made

    def handed_out() -> None:
        batch, state = waiting.popleft()
        if core.tally.keeping is not None:
            core.tally.keeping.drew(core, batch, state)
        with lock.reentrant:
            count(core, size)
            if account is not None:
                account.items -= size

    def dropped() -> None:
        if account is not None:
            account.over = True

    return DrawsAhead(draw_ahead, handed_out, dropped)


def _ahead_of_own(
    core: Core, size: int, beta: float | None, change: Transform, sample: Callable[..., Batch]
) -> DrawsAhead:
    """Draw batches by the `sample` of a subclass, which counts its draws itself."""
    limit, named = core.limit, {} if beta is None else {"beta": beta}

    def draw_ahead(stopped: Callable[[], bool]) -> Batch:
        since = None
        while limit is not None and not limit.can_sample(size):
            since = limit.wait_to_sample(size, since, stopped)
        with core.lock.alone():
            seed = change.seed(core.tally.rng)
        return change(sample(size, **named), seed)

    return DrawsAhead(draw_ahead, lambda: None, lambda: None)
