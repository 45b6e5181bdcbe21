"""The losses of an algorithm's `train`, weighted: its own code runs, with other functions under their names.

weights w, ids    of the draw
td error          current - target `[B, critics]`; of the means over quantiles, where values are distributions
loss              mean of w * loss(current, target)
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import ArgumentError, ReliveError, event, message
from ._buffer import ReplayBuffer

_QUANTILES = "quantile_huber_loss"  # of sb3-contrib
_SQUARES, _HUBER = "mse_loss", ("smooth_l1_loss", "huber_loss")


def loss_of(error: Tensor, kind: str, threshold: float) -> Tensor:
    """Return the loss of every TD error e: `e**2`; with huber `k * (2 |e| - k)` where `|e|` is above the threshold."""
    if kind == "mse":
        return error.square()
    return 2.0 * functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=threshold)


def check_losses(train: MethodType, critic_loss: str | None, priority: str, at: str) -> None:
    """Check that the losses that `train` calls by name can be weighted.

    Raises:
        ArgumentError: It calls none, or one of quantiles, which has neither `critic_loss` nor `priority="lap"`.
    """
    names = _losses_of(train)
    if not names:
        wanted = f"an algorithm whose `train` calls `F.mse_loss`, `F.smooth_l1_loss` or `{_QUANTILES}` by name"
        raise ArgumentError(message(wanted, f"`{train.__module__}.{train.__qualname__}`", at))
    if _QUANTILES not in names:
        return
    if critic_loss is not None:
        wanted = "None with an algorithm whose critic has quantiles"
        raise ArgumentError(message(wanted, f"`{critic_loss!r}`", f"{at}(critic_loss)"))
    if priority == "lap":
        wanted = "`'td'` or `'precision'` with an algorithm whose critic has quantiles"
        remedy = "`'lap'` belongs to Huber's loss of single values"
        raise ArgumentError(message(wanted, "`'lap'`", f"{at}(priority)", remedy))


def _losses_of(train: MethodType) -> dict[str, Any]:
    """Find the losses in the globals of `train`, or modules of losses, by name."""
    known = train.__func__.__globals__
    return {name: value for name, value in known.items() if value is functional or name == _QUANTILES}


class Weighing:
    """Stands for the replay buffer while an algorithm learns, and weighs the losses of the batches that it draws.

    Args:
        buffer: Where batches and weights come from, and priorities go.
        critic_loss: `"mse"` or `"huber"` instead of the algorithm's own loss.
        threshold: Where Huber's loss becomes linear.
        priorities: Priorities `[B]` of a batch and its absolute TD errors `[B, critics]`.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        critic_loss: str | None,
        threshold: float,
        priorities: Callable[[Any, Tensor], Any],
    ) -> None:
        self.buffer = buffer
        self._critic_loss, self._threshold, self._priorities = critic_loss, threshold, priorities
        self._data: Any = None
        self._errors: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Draw a batch, after the one before has its new priorities."""
        self.update()
        self._data = self.buffer.sample(batch_size, env=env)
        return self._data

    def update(self) -> None:
        """Update the priorities of the batch that was drawn.

        Raises:
            ReliveError: No loss of it was computed under a name that is known.
        """
        data, errors, self._data, self._errors = self._data, self._errors, None, []
        if data is None:
            return
        if not errors:
            remedy = f"call `F.mse_loss`, `F.smooth_l1_loss` or `{_QUANTILES}` in `train` itself"
            raise ReliveError(event("`train` computed no loss that could be weighted", "PrioritizedReplay", remedy))
        self.buffer.update_priorities(data.ids, self._priorities(data, torch.cat(errors, dim=1).abs()))

    def weighted(self, train: MethodType) -> Callable[[int, int], None]:
        """`train` with weighted losses; those that it calls outside of itself stay as they are."""
        known = train.__func__.__globals__
        instead = {name: self._quantiles(value) if name == _QUANTILES else self._functional()
                   for name, value in _losses_of(train).items()}  # fmt: skip
        code = train.__func__
        copy = FunctionType(code.__code__, {**known, **instead}, code.__name__, code.__defaults__, code.__closure__)
        copy.__kwdefaults__ = code.__kwdefaults__
        return MethodType(copy, train.__self__)

    def _functional(self) -> SimpleNamespace:
        """Return `torch.nn.functional` with weighted losses."""
        weighted = {name: self._values(name) for name in (_SQUARES, *_HUBER)}
        return SimpleNamespace(**{**vars(functional), **weighted})

    def _values(self, name: str) -> Callable[..., Tensor]:
        own = getattr(functional, name)
        kind, factor = (self._critic_loss or "mse", 1.0) if name == _SQUARES else (self._critic_loss or "huber", 0.5)

        def loss(current: Tensor, target: Tensor, **choices: Any) -> Tensor:
            if choices or self._data is None or current.shape != self._data.weights.shape:
                another: Tensor = own(current, target, **choices)  # than a critic's
                return another
            error = current - target
            self._errors.append(error.detach())
            weighted: Tensor = factor * (self._data.weights * loss_of(error, kind, self._threshold)).mean()
            return weighted

        return loss

    def _quantiles(self, own: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def loss(current: Tensor, target: Tensor, *arguments: Any, **choices: Any) -> Tensor:
            error = current.detach().mean(dim=-1) - target.mean(dim=-1)
            self._errors.append(error.reshape(len(error), -1))
            each = torch.vmap(lambda one, other: own(one[None], other[None], *arguments, **choices))(current, target)
            weighted: Tensor = (self._data.weights[:, 0] * each).mean()
            return weighted

        return loss
