"""Drawing ahead, in a background thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base import check
from .._flow.prefetch import Prefetched, converter
from .._flow.transform import Change, Transform
from ..batch import Batch
from .arguments import no_priorities, too_many
from .core import Core
from .drawing import count, draw

_AT = "ReplayBuffer.prefetch"


def prefetched(
    core: Core,
    batch_size: int,
    depth: int,
    to: str | None,
    device: Any,
    beta: float | None,
    transform: Change | None,
) -> Prefetched:
    """`ReplayBuffer.prefetch`."""
    size = check.integer(batch_size, f"{_AT}(batch_size)", minimum=1)
    ahead = check.integer(depth, f"{_AT}(depth)", minimum=1)
    if size > core.most:
        raise too_many(core.most, size, f"{_AT}(batch_size)")
    if beta is not None:
        beta = check.real(beta, f"{_AT}(beta)", low=0.0)
        if not core.sampler.prioritizes:
            raise no_priorities(core.sampler, f"{_AT}(beta)")
    change, convert = Transform(transform, f"{_AT}(transform)"), converter(to, device)
    lock, limit = core.lock, core.limit
    account = None if limit is None else limit.drawing_ahead()

    def draw_ahead(stopped: Callable[[], bool]) -> Batch:
        since = None
        while True:
            with lock.alone():
                if limit is None or limit.can_sample(size):
                    seed = change.seed(core.tally.rng)
                    batch = draw(core, size, beta)
                    if account is not None:
                        account.items += size
                    break
            since = limit.wait_to_sample(size, since, stopped)
        return convert(change(batch, seed))

    def handed_out() -> None:
        with lock.reentrant:
            count(core, size)
            if account is not None:
                account.items -= size

    def dropped() -> None:
        if account is not None:
            account.over = True

    return Prefetched(draw_ahead, ahead, handed_out=handed_out, dropped=dropped, at=_AT)
