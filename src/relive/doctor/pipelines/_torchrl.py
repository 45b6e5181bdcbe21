"""TorchRL's own buffer behind its own collector."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item
from ._loops import Run, Runner


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log only warnings of TorchRL: standard output belongs to the report."""
    logger = logging.getLogger("torchrl")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class TorchRLCollected(Runner):
    """`TensorDictReplayBuffer` with `MultiStepTransform` behind a `Collector`; the library resets by itself.

    Its prioritized sampler is not examined: it does not load beside every PyTorch.
    """

    modes = (AutoresetMode.DISABLED,)

    def __init__(self) -> None:
        super().__init__()
        with needs("torchrl", "relive.doctor"):
            import torchrl.collectors
            import torchrl.data
            import torchrl.envs
        self._collectors, self._data, self._envs = torchrl.collectors, torchrl.data, torchrl.envs

    def _made(self, run: Run) -> Any:
        choices: dict[str, Any] = {}
        if run.n_step > 1:
            # With the transform time is an axis of its own, and a batch has to be longer than a window.
            transform = self._envs.transforms.MultiStepTransform(run.n_step, run.gamma)
            choices = {"transform": transform, "dim_extend": 1}
        storage = self._data.LazyTensorStorage(run.size, ndim=1 if run.n_step == 1 else 2)
        return self._data.TensorDictReplayBuffer(storage=storage, batch_size=1, **choices)

    def _fill(self, run: Run) -> None:
        """Let a collector fill the buffer; `reset_at` calls its `reset` after the batch that has this call."""
        made, several = [run.make_env() for _ in range(run.num_envs)], run.n_step > 1
        envs = self._envs.SerialEnv(run.num_envs, [lambda env=env: self._envs.GymWrapper(env) for env in made])
        frames = run.num_envs * (run.n_step + 2 if several else 1)
        with _quiet():
            collector = self._collectors.Collector(
                envs, None, frames_per_batch=frames, total_frames=run.num_envs * run.calls
            )
            left, done = sorted(run.reset_at), 0
            for data in collector:
                self._buffer.extend(data if several else data.reshape(-1))
                done += data.numel() // run.num_envs
                if left and done >= left[0]:
                    left = [number for number in left if number > done]
                    collector.reset()
            collector.shutdown()

    def items(self) -> Item:
        """Return every item."""
        return self._items(self._buffer[:].reshape(-1))

    def _items(self, data: Any) -> Item:
        steps = data.get("steps_to_next_obs", None)
        after = data["next"]
        discount = self._gamma ** (steps.reshape(-1) if steps is not None else 1)
        bootstrap = discount * (~after["terminated"].reshape(-1))
        return Item(data["observation"], after["reward"], bootstrap, after["observation"])
