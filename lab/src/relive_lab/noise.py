"""How much of a critic's squared TD error is noise: whether prioritization by TD error has anything to go by.

A TD error is a mean given observation and action, which learning removes, and noise around it, which stays: of the
reward, of the next observation, of the next action. Nets fit TD errors of a fixed critic on one part of the memory;
what they leave of the squared TD errors of another part is the noise. What a net fails to find counts as noise, too,
so with few items the share comes out too high rather than too low.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import relive
from relive.errors import ArgumentError, NotEnoughData, PriorityError, message
from relive_lab import checks
from relive_lab.nets import Perceptron
from relive_lab.statistics import Estimate

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Data = relive.ReplayBuffer | Mapping[str, Any]
TdError = Callable[[Any], Any] | npt.ArrayLike

AT = "noise_share"
FOLDS, BLOCKS = 5, 50  # nets, each with its own held-out part; blocks of neighbouring items
PARTS = ((2, 3, 4), (1,), (0,))  # folds, counted from its own, that a net learns from, stops by, and is tested on
LEAST = 500  # items
WIDEST = 4_096  # numbers in observation and action
CHUNK = 1_024  # items per call of `td_error`
WIDTHS, RATE, ROWS = (64, 64), 2e-3, 256
ROUND, MOST_ROUNDS, PATIENCE = 75, 20, 3  # steps between two looks at the held-out part, and when to stop
RESAMPLES, KINDS = 2_000, 256


@dataclasses.dataclass(frozen=True)
class NoiseShare:
    """The result of `noise_share`.

    Attributes:
        share: Share of the mean squared TD error that is noise given observation and action, from 0 to 1, with a 95 %
            interval. The interval is for other items from the same memory; nets that miss a part of what could be
            learned make share and interval too high, never too low.
        items: Different items that it was computed from.

    >>> print(NoiseShare(Estimate(0.93, 0.91, 0.95), 20_000))
    93 % of the squared TD error is noise [91 %, 95 %]
    """

    share: Estimate
    items: int

    def __str__(self) -> str:
        value, low, high = (f"{100 * part:.0f} %" for part in (self.share.value, self.share.low, self.share.high))
        return f"{value} of the squared TD error is noise [{low}, {high}]"


def noise_share(data: Data, td_error: TdError, *, items: int = 20_000, seed: int = 0) -> NoiseShare:
    """Estimate which share of the squared TD error is noise, from a memory and a critic as they are.

    Args:
        data: A `ReplayBuffer` of transitions, or a mapping with `obs` (arrays `[N, ...]`, nested or not) and `action`
            `[N, ...]`, in the order of time. A buffer is drawn from without changing what it draws next; draws that
            are not uniform are corrected for.
        td_error: The TD errors `[N]`; for a buffer a function that takes a batch of NumPy arrays and returns one TD
            error for each of its items, `[B]`. The critic must not learn meanwhile.
        items: Draws from the buffer. Too few to learn from make the share too high.
        seed: Decides draws and nets.

    Raises:
        ArgumentError: `data` lacks a field, holds one of another length, or is a buffer of sequences; `td_error` is no
            function for a buffer; observation and action have more than 4,096 numbers.
        PriorityError: TD errors are of the wrong length, not finite, or all 0.
        NotEnoughData: Fewer than 500 different items.

    >>> rng = np.random.default_rng(0)
    >>> obs, action = rng.normal(size=(2, 1_500, 1))
    >>> td = np.sqrt(0.1) * np.sign(obs[:, 0]) + np.sqrt(0.9) * rng.normal(size=1_500)
    >>> bool(0.8 < noise_share({"obs": obs, "action": action}, td).share.value < 1.0)
    True
    """
    seed, items = checks.integer(seed, f"{AT}(seed)", 0), checks.integer(items, f"{AT}(items)", 1)
    table = _drawn(data, td_error, items, seed) if isinstance(data, relive.ReplayBuffer) else _given(data, td_error)
    size = len(table.td)
    if size < LEAST:
        raise NotEnoughData(message(f"at least {LEAST} different items", f"{size}", AT))
    blocks = np.arange(size) * BLOCKS // size
    if not table.td.any():
        raise PriorityError(message("TD errors", "zeros only", f"{AT}(td_error)"))
    left = _residuals(table, blocks, seed)
    part, whole = (np.bincount(blocks, table.weights * squares, BLOCKS) for squares in (left, table.td**2))
    rows = np.random.default_rng(seed).integers(BLOCKS, size=(RESAMPLES, BLOCKS))  # blocks of each resample
    low, high = np.quantile(part[rows].sum(axis=1) / whole[rows].sum(axis=1), (0.025, 0.975))
    value = part.sum() / whole.sum()
    return NoiseShare(Estimate(*(min(float(share), 1.0) for share in (value, low, high))), size)


@dataclasses.dataclass(frozen=True)
class _Table:
    """Different items in the order of time: inputs of the nets, TD errors, and how much each counts."""

    inputs: Floats
    td: Floats
    weights: Floats


def _drawn(buffer: relive.ReplayBuffer, td_error: TdError, items: int, seed: int) -> _Table:
    if not callable(td_error):
        got = f"`{type(td_error).__name__}`"
        raise ArgumentError(message("a function from batches to TD errors", got, f"{AT}(td_error)"))
    if getattr(buffer.item, "time_major", None) is not None:
        remedy = "pass a mapping with the state of your recurrent net as `obs`"
        raise ArgumentError(message("a buffer of transitions", f"`{buffer.item}`", f"{AT}(data)", remedy))
    own, buffer.rng = buffer.rng, np.random.default_rng(seed)
    try:
        batch = buffer.sample(items, beta=1.0 if buffer.sampler.prioritizes else None)
    finally:
        buffer.rng = own
    # Weights are proportional to 1 / P, whose mean over draws is the number of items that can be drawn. An item is
    # among n draws with probability 1 - (1 - P)^n, and counts the inverse of that.
    weights = np.asarray(batch.weights, np.float64)
    probability = np.minimum(weights.mean() / (weights * buffer.stats().drawable), 1.0)
    _, rows = np.unique(batch.ids, return_index=True)
    inclusion = 1.0 - (1.0 - probability[rows]) ** items
    chunks = [_some(batch, rows[first : first + CHUNK]) for first in range(0, len(rows), CHUNK)]
    td = np.concatenate([_numbers(td_error(chunk), (len(chunk.ids),)) for chunk in chunks])
    chosen = _some(batch, rows)
    return _Table(_inputs(chosen), td, inclusion.mean() / inclusion)


def _some(batch: relive.Batch, rows: Rows) -> relive.Batch:
    return batch.map(lambda array: array[rows])


def _given(data: Mapping[str, Any], td_error: TdError) -> _Table:
    if not isinstance(data, Mapping) or not {"obs", "action"} <= set(data):
        got = ", ".join(f"`{name}`" for name in data) if isinstance(data, Mapping) else f"`{type(data).__name__}`"
        raise ArgumentError(message("a ReplayBuffer, or `obs` and `action`", got, f"{AT}(data)"))
    inputs = _inputs(data)
    return _Table(inputs, _numbers(td_error, (len(inputs),)), np.ones(len(inputs)))


def _inputs(data: Mapping[str, Any]) -> Floats:
    """Scale observation and action to standardized columns `[N, D]`; integer actions of few kinds are one-hot."""
    action = _plain(data["action"])
    kinds = np.unique(action) if action.dtype.kind in "iub" and action.ndim == 1 else np.empty(0)
    if 0 < len(kinds) <= KINDS:
        action = action[:, None] == kinds
    leaves = [*_leaves(data["obs"]), action]
    if len({len(leaf) for leaf in leaves}) != 1:
        got = ", ".join(f"{len(leaf)}" for leaf in leaves)
        raise ArgumentError(message("observations and actions of one length", got, f"{AT}(data)"))
    width = sum(leaf[0].size if len(leaf) else 0 for leaf in leaves)
    if width > WIDEST:
        remedy = "pass a mapping with features of your critic as `obs`"
        raise ArgumentError(message(f"at most {WIDEST} numbers in observation and action", f"{width}", AT, remedy))
    columns = np.concatenate([leaf.reshape(len(leaf), -1).astype(np.float64) for leaf in leaves], axis=1)
    spread = columns.std(axis=0)
    standard: Floats = (columns - columns.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return standard


def _leaves(values: Any) -> list[npt.NDArray[Any]]:
    if isinstance(values, Mapping):
        return [leaf for child in values.values() for leaf in _leaves(child)]
    return [_plain(values)]


def _plain(values: Any) -> npt.NDArray[Any]:
    detach = getattr(values, "detach", None)
    return np.asarray(detach().cpu() if callable(detach) else values)


def _numbers(td_error: Any, shape: tuple[int, ...]) -> Floats:
    values, at = _plain(td_error), f"{AT}(td_error)"
    values = values[:, 0] if values.shape == (*shape, 1) else values
    if values.dtype.kind not in "iuf" or values.shape != shape:
        got = f"`{values.dtype}` of shape `{values.shape}`"
        raise PriorityError(message(f"TD errors of shape `{shape}`, one per item", got, at))
    if not np.isfinite(values).all():
        raise PriorityError(message("finite TD errors", f"{(~np.isfinite(values)).sum()} that are not", at))
    return values.astype(np.float64)


def _residuals(table: _Table, blocks: npt.NDArray[np.intp], seed: int) -> Floats:
    """Return squared residuals of TD errors `[N]`, each from a net that has not seen the item's block.

    Net k tests on fold k, stops where fold k + 1 is fitted best, and learns from the rest. Its last layer begins at 0:
    at the start, TD errors are predicted to be 0.
    """
    scale = np.sqrt((table.td**2).mean())
    parts = (torch.from_numpy(part.astype(np.float32)) for part in (table.inputs, table.td / scale, table.weights))
    inputs, goals, weights = parts
    folds = blocks % FOLDS
    learn, check, test = ([np.flatnonzero(np.isin((folds - k) % FOLDS, own)) for k in range(FOLDS)] for own in PARTS)
    errors = _fitted(inputs, goals, weights, learn, _padded(check), _padded(test), seed)
    found = np.zeros(len(table.td))
    for rows, own in zip(test, errors, strict=True):
        found[rows] = own[: len(rows)]
    squares: Floats = found * scale**2
    return squares


def _padded(parts: list[Rows]) -> Tensor:
    """Return rows of different number as `[FOLDS, most]`, filled up with -1."""
    table = np.full((len(parts), max(len(rows) for rows in parts)), -1)
    for own, rows in zip(table, parts, strict=True):
        own[: len(rows)] = rows
    return torch.from_numpy(table)


def _fitted(
    inputs: Tensor, goals: Tensor, weights: Tensor, learn: list[Rows], check: Tensor, test: Tensor, seed: int
) -> Floats:
    """Fit all nets, as one batched product; return squared errors `[FOLDS, most]` on `test`.

    They are those of the moment at which a net fits best on `check`.
    """
    generator = torch.Generator().manual_seed(seed)
    net = Perceptron((inputs.shape[1], *WIDTHS, 1), FOLDS, generator)
    for last in (net.weights[-1], net.biases[-1]):
        last.data.zero_()
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    sizes = torch.tensor([[len(rows)] for rows in learn])
    rows, valid = _padded(learn), (check >= 0) * weights[check]

    def squares(part: Tensor) -> Tensor:
        errors: Tensor = net(inputs[part]).squeeze(2) - goals[part]
        return errors.square()

    best, kept, stale = torch.full((FOLDS,), torch.inf), torch.empty(test.shape), 0
    for _ in range(MOST_ROUNDS):
        with torch.no_grad():
            score = (valid * squares(check)).sum(1)
            if (better := score < best).any():
                kept = torch.where(better.unsqueeze(1), squares(test), kept)
        best, stale = torch.minimum(score, best), 0 if better.any() else stale + 1
        if stale > PATIENCE:
            break
        for _ in range(ROUND):
            drawn = rows.gather(1, (torch.rand((FOLDS, ROWS), generator=generator) * sizes).long())
            loss = (weights[drawn] * squares(drawn)).mean(1).sum()
            for weight, gradient in zip(net.parameters(), torch.autograd.grad(loss, [*net.parameters()]), strict=True):
                weight.grad = gradient
            optimizer.step()
    return kept.double().numpy()
