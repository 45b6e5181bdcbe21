"""Tianshou's vector buffers on relive: for its collectors, algorithms and trainers, without a change to them.

Rewards, flags and infos are kept as Tianshou keeps them, by slot, since its code reads them so. Observations and
actions, which episodes may be followed across a reset, and priorities are relive's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.extras import needs
from .._base.types import Array
from ..samplers import Prioritized

with needs("tianshou", "relive.tianshou"):
    from ._vector import VectorReplayBuffer as VectorReplayBuffer

_EPS = float(np.finfo(np.float32).eps)

__all__ = ["PrioritizedVectorReplayBuffer", "VectorReplayBuffer"]


class PrioritizedVectorReplayBuffer(VectorReplayBuffer):
    """Tianshou's `PrioritizedVectorReplayBuffer`: drawn in proportion to `(|weight| + eps)**alpha`.

    A new step gets the largest priority so far, 1 before there is one.

    Args:
        total_size: As for `VectorReplayBuffer`, and so are the arguments that are not named here.
        buffer_num: Environments.
        alpha: How strongly priorities count.
        beta: Exponent of the importance-sampling weights, in `batch.weight`.
        weight_norm: Whether they are divided by the largest in the batch; else by the largest in the buffer.
        **choices: The other arguments of `VectorReplayBuffer`.

    >>> import numpy as np
    >>> from tianshou.data import Batch
    >>> buffer = PrioritizedVectorReplayBuffer(100, buffer_num=1, alpha=0.6, beta=0.4)
    >>> step = Batch(obs=np.zeros((1, 3)), act=np.zeros(1), rew=np.ones(1), obs_next=np.zeros((1, 3)), info={})
    >>> _ = buffer.add(Batch(step, terminated=np.zeros(1, bool), truncated=np.zeros(1, bool)))
    >>> batch, indices = buffer.sample(4)
    >>> buffer.update_weight(indices, np.full(4, 0.5))
    >>> batch.weight.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self, total_size: int, buffer_num: int, alpha: float, beta: float, weight_norm: bool = True, **choices: Any
    ) -> None:
        scale = "batch" if weight_norm else "buffer"
        sampler = Prioritized(alpha=alpha, beta=beta, eps=_EPS, weights=scale)
        super().__init__(total_size, buffer_num, sampler=sampler, **choices)

    def update_weight(self, index: Any, new_weight: Any) -> None:
        """Set priorities: `|new_weight| + eps`.

        A slot that was overwritten since it was drawn is left alone, and counted in `relive.stats().stale_updates`.

        Args:
            index: What `sample` returned, as it is; or slots.
            new_weight: One number for each; a tensor may require grad.

        Raises:
            PriorityError: One is NaN or infinite, or there are not as many. Nothing has changed.
        """
        self._update_weight(index, new_weight)

    def get_weight(self, index: Any) -> Array:
        """Return the importance-sampling weights of these slots."""
        return self._get_weight(index)

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance-sampling weights."""
        self._set_beta(beta)

    def _choices(self) -> dict[str, Any]:
        settings = self._sampler
        return {"alpha": settings.alpha, "beta": settings.beta, "weight_norm": settings.weights == "batch"}
