"""Batches drawn in the background while the learner works on the previous one."""

from __future__ import annotations

from collections.abc import Callable

from .._base import check
from .._flow.prefetch import Prefetched
from .._flow.transform import Change, Transform
from ..batch import Batch
from ..errors import ArgumentError, message
from ..mixture import Sampled, generators


class Prefetch(Prefetched):
    """Iterate over batches of `source`; a thread draws up to `ahead` of them in advance.

    Args:
        source: Anything with `sample(n)`: a `TrajectoryReplayBuffer`, a `Mixture`, a `ReplayBuffer`.
        batch_size: Rows of a batch.
        batches: How many batches to draw; None draws until `close`.
        ahead: How many batches to draw in advance, >= 1.
        transform: As in `ReplayBuffer.prefetch`. A batch's generator starts from the numbers of `source.rng`; of a
            `Mixture`, from those of its buffers, one after the other. Nothing else may draw from them meanwhile, if
            batches are to be repeated.

    If a draw fails, its error is raised in place of its batch, and the iteration ends. Leaving a `with` block, or
    `close`, stops the thread and the iteration.

    Raises:
        ArgumentError: An argument is outside its limits, `source` has no `sample`, or with `transform` no generator of
            NumPy's.

    >>> import numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> buffer = TrajectoryReplayBuffer(seed=0)
    >>> buffer.add_trajectories([Trajectory(rewards=np.zeros((5, 2, 1)))])
    >>> with Prefetch(buffer, batch_size=4, batches=3) as batches:
    ...     [batch.rewards.shape for batch in batches]
    [(4, 1), (4, 1), (4, 1)]
    """

    def __init__(
        self,
        source: Sampled,
        batch_size: int,
        *,
        batches: int | None = None,
        ahead: int = 2,
        transform: Change | None = None,
    ) -> None:
        if not callable(getattr(source, "sample", None)):
            got = f"`{type(source).__name__}`"
            raise ArgumentError(message("something with `sample`", got, "Prefetch(source)"))
        size = check.integer(batch_size, "Prefetch(batch_size)", minimum=1)
        left = None if batches is None else check.integer(batches, "Prefetch(batches)", minimum=0)
        depth = check.integer(ahead, "Prefetch(ahead)", minimum=1)
        change = Transform(transform, "Prefetch(transform)")
        change.seed(*generators(source))  # refuses a source without

        def draw(stopped: Callable[[], bool]) -> Batch:
            seed = change.seed(*generators(source))
            return change(source.sample(size), seed)

        super().__init__(draw, depth, batches=left, at="Prefetch")
