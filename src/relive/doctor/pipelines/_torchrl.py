"""TorchRL's own buffer behind its own collector."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from gymnasium.vector import AutoresetMode

from relive._base.extras import needs

from .._pipeline import Item


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TorchRL logs to standard output, which belongs to the report."""
    logger = logging.getLogger("torchrl")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class TorchRLCollected:
    """`TensorDictReplayBuffer` with `MultiStepTransform` behind a `Collector`; the library resets by itself.

    Its prioritized sampler is not examined: it does not load beside every PyTorch.
    """

    modes = (AutoresetMode.DISABLED,)

    def __init__(self) -> None:
        with needs("torchrl", "relive.doctor"):
            import torchrl.collectors
            import torchrl.data
            import torchrl.envs
        self._collectors, self._data, self._envs = torchrl.collectors, torchrl.data, torchrl.envs
        self._buffer: Any = None
        self._capacity: int | None = None
        self._gamma = 0.0

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: Collection[int] = (),
    ) -> None:
        """Let a collector fill the buffer; one of the same `capacity` as in the run before is overwritten.

        `reset_at` calls the collector's `reset` behind the batch that has this call.
        """
        self._gamma = gamma
        made = [make_env() for _ in range(num_envs)]
        envs = self._envs.SerialEnv(num_envs, [lambda env=env: self._envs.GymWrapper(env) for env in made])
        several = n_step > 1
        if self._buffer is None or capacity is None or capacity != self._capacity:
            self._buffer = self._made(capacity or 2 * num_envs * calls, n_step)
        self._capacity = capacity
        frames = num_envs * (n_step + 2 if several else 1)
        with _quiet():
            collector = self._collectors.Collector(envs, None, frames_per_batch=frames, total_frames=num_envs * calls)
            left, done = sorted(reset_at), 0
            for data in collector:
                self._buffer.extend(data if several else data.reshape(-1))
                done += data.numel() // num_envs
                if left and done >= left[0]:
                    left = [number for number in left if number > done]
                    collector.reset()
            collector.shutdown()

    def _made(self, size: int, n_step: int) -> Any:
        """A buffer of theirs."""
        choices: dict[str, Any] = {}
        if n_step > 1:
            # With the transform time is an axis of its own, and a batch has to be longer than a window.
            choices = {"transform": self._envs.transforms.MultiStepTransform(n_step, self._gamma), "dim_extend": 1}
        storage = self._data.LazyTensorStorage(size, ndim=1 if n_step == 1 else 2)
        return self._data.TensorDictReplayBuffer(storage=storage, batch_size=1, **choices)

    def items(self) -> Iterable[Item]:
        """Every item."""
        return self._items(self._buffer[:].reshape(-1))

    def _items(self, data: Any) -> list[Item]:
        steps = data.get("steps_to_next_obs", None)
        after = data["next"]
        discount = self._gamma ** (steps.reshape(-1) if steps is not None else 1)
        bootstrap = discount * (~after["terminated"].reshape(-1))
        columns = (data["observation"], after["reward"], bootstrap, after["observation"])
        return [Item(*(value.numpy() for value in row)) for row in zip(*columns, strict=True)]
