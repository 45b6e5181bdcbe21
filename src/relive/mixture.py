"""Batches mixed from several buffers, such as replay and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from ._base import check
from ._base.forks import importing
from ._base.narrow import as_array, from_torch
from .batch import AnyBatch, Batch, joined_at_once
from .buffer import ReplayBuffer
from .errors import ArgumentError, PriorityError, ReliveError, SchemaError, message

if TYPE_CHECKING:
    from ._flow.prefetch import DrawsAhead, Prefetched
    from ._flow.transform import Change
    from .device import DeviceBuffer

# Shares are taken for the nearest fractions with denominators up to this: 0.29 for 29/100, 1 / 3 for 1/3.
_DENOMINATORS = 10**6


class Sampled(Protocol):
    """Anything that batches can be drawn from."""

    def sample(self, num_chunks: int, /) -> Batch:
        """Draw `num_chunks` items."""


class Mixture:
    """Draw given shares of every batch from several buffers: replay buffers, trajectories, mixtures.

    Args:
        replay: The first buffer, such as the one that the agent fills.
        demonstrations: The second one.
        *others: Further ones.
        share: Of two buffers, the second one's share of a batch, between 0 and 1.
        shares: The shares of all buffers, in their order; their sum is 1. None: `share`, or the same for each of more
            than two.

    Raises:
        ArgumentError: Shares outside these limits, or for another number of buffers; a buffer without `sample`; items
            of which some have time as the first axis and others do not; items with `trim=True`.

    Rows of a batch come buffer after buffer. Of `n` rows, those of a buffer begin at `n` times the shares before it, an
    exact fraction that is rounded up. So the number of its rows is its share where that is a whole number, and less
    than one row away from it otherwise; of two buffers the second one's is rounded down. `update_priorities` splits a
    batch in the same way, and mixtures in a mixture split their part.

    Fields that only some of the buffers have are left out. With a `DeviceBuffer` among them a batch is of tensors on
    its device, where the items of an ordinary buffer are copied.

    Source: Ball et al. 2023 (RLPD) and RLinf's `ReplayBufferDataset`; both use a share of 0.5.

    >>> import numpy as np, relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffers = [relive.ReplayBuffer(schema, 100, seed=seed) for seed in range(3)]
    >>> for value, buffer in enumerate(buffers):
    ...     step = dict(obs=value, action=0.0, reward=value, next_obs=value, terminated=False, truncated=False)
    ...     ids = buffer.add(**step)
    >>> Mixture(*buffers[:2]).sample(6).reward.tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    >>> Mixture(*buffers, shares=(0.5, 0.3, 0.2)).sample(10).reward.tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> replay, demonstrations = TrajectoryReplayBuffer(seed=0), TrajectoryReplayBuffer(seed=1)
    >>> replay.add_trajectories([Trajectory(rewards=np.zeros((5, 2, 1)))])
    >>> demonstrations.add_trajectories([Trajectory(rewards=np.ones((5, 2, 1)))])
    >>> Mixture(replay, demonstrations, share=0.25).sample(8).rewards[:, 0].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    """

    def __init__(
        self,
        replay: Sampled,
        demonstrations: Sampled,
        *others: Sampled,
        share: float = 0.5,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.buffers = (replay, demonstrations, *others)
        names = ("replay", "demonstrations", *(f"others[{i}]" for i in range(len(others))))
        for name, buffer in zip(names, self.buffers, strict=True):
            if isinstance(buffer, type) or not callable(getattr(buffer, "sample", None)):
                wanted = "a buffer with `sample`"
                raise ArgumentError(message(wanted, f"`{type(buffer).__name__}`", f"Mixture({name})"))
            check.one_length(getattr(buffer, "item", None), f"Mixture({name})")
        self.replay, self.demonstrations = replay, demonstrations
        exact = _shares(len(self.buffers), share, shares)
        self.shares = tuple(map(float, exact))
        ends = [sum(exact[:i], Fraction()) for i in range(1, len(exact))]
        self._ends = [end.as_integer_ratio() for end in ends]
        self.device: Any = next((buffer.device for buffer in self.buffers if _on_device(buffer)), None)
        self._single = _single(replay)
        if any(_single(buffer) != self._single for buffer in self.buffers):
            wanted, got = "buffers whose items all have time as the first axis, or all as the second", "some of each"
            raise ArgumentError(message(wanted, got, "Mixture", "give their items the same `time_major`"))

    @property
    def share(self) -> float:
        """The share of the second buffer."""
        return self.shares[1]

    def __repr__(self) -> str:
        return f"Mixture({', '.join(map(repr, self.buffers))}, shares={self.shares})"

    def sample(self, num_chunks: int, /) -> AnyBatch:
        """Draw a batch of `num_chunks` rows from all buffers; `ids` name the steps of the buffer that a row is from.

        Raises:
            NotEnoughData: One of the buffers is empty.
            SchemaError: A field that all have differs in dtype or shape.
        """
        n = check.integer(num_chunks, "Mixture.sample(num_chunks)", minimum=1)
        return self._joined([buffer.sample(rows.stop - rows.start) for buffer, rows in self._parts(n)])

    def can_sample(self, num_chunks: int, /) -> bool:
        """Tell if `sample(num_chunks)` would find enough in all buffers."""
        try:
            n = check.integer(num_chunks, "Mixture.can_sample(num_chunks)", minimum=1)
        except ArgumentError:
            return False
        return all(_can_sample(buffer, rows.stop - rows.start) for buffer, rows in self._parts(n))

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        to: str | None = None,
        device: Any = None,
        transform: Change | None = None,
    ) -> Prefetched:
        """Draw in a background thread, as `ReplayBuffer.prefetch` does.

        Of each `ReplayBuffer` items count as drawn, and limiters wait, as if it were alone. The `rng` of a `transform`
        starts from the numbers of all generators, in the order of the buffers, from which nothing else may draw
        meanwhile, if batches are to be repeated.

        Raises:
            ArgumentError: An argument outside its limits, or with `transform` a buffer without a generator of NumPy's.
            MissingExtra: The package that `to` names is not installed.
        """
        with importing:
            from ._flow.prefetch import Prefetched, converter
            from ._flow.transform import Transform

        at = "Mixture.prefetch"
        size = check.integer(batch_size, f"{at}(batch_size)", minimum=1)
        ahead = check.integer(depth, f"{at}(depth)", minimum=1)
        change, convert = Transform(transform, f"{at}(transform)"), converter(to, device, at)
        change.seed(*generators(self))  # refuses a buffer without
        source = self._ahead(size)

        def draw(stopped: Callable[[], bool]) -> Batch:
            seed = change.seed(*generators(self))
            return convert(change(source.draw(stopped), seed))

        return Prefetched(draw, ahead, handed_out=source.handed_out, dropped=source.dropped, at=at)

    def stats(self) -> tuple[Any, ...]:
        """Return the statistics of each buffer, by its own `stats` or `get_stats`; None for one without."""
        found = (getattr(buffer, "stats", getattr(buffer, "get_stats", None)) for buffer in self.buffers)
        return tuple(stats() if callable(stats) else None for stats in found)

    def update_priorities(self, ids: Any, td_error: Any) -> int | None:
        """Set the priorities of a whole batch, in all buffers; one without priorities is passed over.

        A `DeviceBuffer` gets its part without a wait. For the part of an ordinary buffer beside it the call waits.

        Args:
            ids: The ids of the batch, all of them and in its order: the first ones are those of the first buffer.
            td_error: One number per id, of either sign, `[B]` or `[B, 1]`.

        Returns:
            How many were applied; None where a buffer does not say, such as a `DeviceBuffer`.

        Raises:
            PriorityError: There are not as many TD errors as ids, or one of them is not finite. Nothing has changed.
            StaleId: An id was never issued. Buffers before its own have their priorities.
        """
        check.unmasked(ids, "Mixture.update_priorities(ids)", ArgumentError)
        check.unmasked(td_error, "$.td_error", PriorityError)
        count, detach = len(ids), getattr(td_error, "detach", None)
        errors = td_error
        if self.device is None:
            errors = as_array(detach() if callable(detach) else td_error)
            fit = errors.shape[:1] == (count,)
            if not fit or not np.isfinite(errors).all():
                wanted, got = f"{count} finite TD errors, one per id", f"{np.isfinite(errors).sum()} of {errors.size}"
                error = PriorityError(message(wanted, got, "$.td_error"))
                error.args = (f"{error}{self._refused(ids, errors) if fit else ''}",)
                raise error
        applied: list[Any] = []
        for buffer, rows in self._parts(count):
            if _prioritizes(buffer):
                given = ids[rows], errors[rows]
                if self.device is not None and not _on_device(buffer):
                    given = from_torch(given[0]), from_torch(given[1])
                applied.append(buffer.update_priorities(*given))
        return None if None in applied else sum(map(int, applied))

    def _refused(self, ids: Any, errors: Any) -> str:
        """Return words for an error about TD errors: the first batch that is kept and has some that are not finite.

        Each buffer refuses such a part as a whole, and its own error names the batch.
        """
        for buffer, rows in self._parts(len(ids)):
            known = isinstance(buffer, ReplayBuffer | Mixture) and _prioritizes(buffer)
            if known and not np.isfinite(errors[rows]).all():
                try:
                    buffer.update_priorities(ids[rows], errors[rows])
                except (ReliveError, TypeError, ValueError) as error:
                    _, _, words = str(error).partition("; `relive batches ")
                    if words:
                        return f"; `relive batches {words}"
        return ""

    def _parts(self, n: int) -> list[tuple[Any, slice]]:
        """List the buffers that have some of `n` rows, with their slices."""
        ends = [-(-n * over // under) for over, under in self._ends]
        parts = zip(self.buffers, [0, *ends], [*ends, n], strict=True)
        return [(buffer, slice(begin, end)) for buffer, begin, end in parts if begin < end]

    def _joined(self, batches: list[Batch]) -> AnyBatch:
        """Join the batches of the parts."""
        for batch in batches:
            if type(batch) is not Batch and not isinstance(batch, Mapping):
                wanted, got = "buffers whose batches are mappings of names to arrays", f"`{type(batch).__name__}`"
                raise ArgumentError(message(wanted, got, "Mixture.sample", "mix adapters' `.relive`"))
        device = self.device
        if device is not None:
            batches = [batch if hasattr(batch["ids"], "detach") else batch.torch(device) for batch in batches]
        one: Any = batches[0]
        if len(batches) > 1:
            joined = joined_at_once(batches) or _joined(batches, self._single, ())
            one = Batch(joined) if isinstance(one, Batch) else joined  # a dict of tensors stays one
        made: AnyBatch = one
        return made

    def _ahead(self, n: int) -> DrawsAhead:
        """Draw batches of `n` rows ahead."""
        with importing:
            from ._flow.prefetch import DrawsAhead

        def part(buffer: Any, size: int) -> DrawsAhead:
            if isinstance(buffer, ReplayBuffer | Mixture):
                return buffer._ahead(size)
            return DrawsAhead(lambda stopped: buffer.sample(size), lambda: None, lambda: None)

        parts = [part(buffer, rows.stop - rows.start) for buffer, rows in self._parts(n)]

        def draw(stopped: Callable[[], bool]) -> Batch:
            return self._joined([each.draw(stopped) for each in parts])

        def handed_out() -> None:
            for each in parts:
                each.handed_out()

        def dropped() -> None:
            for each in parts:
                each.dropped()

        return DrawsAhead(draw, handed_out, dropped)


def generators(source: Sampled) -> list[object]:
    """List the generators of a source's draws."""
    if isinstance(source, Mixture):
        return [rng for buffer in source.buffers for rng in generators(buffer)]
    return [getattr(source, "rng", source)]


def _shares(count: int, share: object, shares: object) -> list[Fraction]:
    """Check the shares of `count` buffers, and return them as fractions, whose sum is 1."""
    second = _fraction(share, "Mixture(share)")
    if second != Fraction(1, 2) and (shares is not None or count != 2):
        got = "`shares=`, too" if shares is not None else f"{count} buffers"
        raise ArgumentError(message("`share=` of two buffers alone", got, "Mixture(share)", "use `shares=`"))
    if shares is None:
        return [1 - second, second] if count == 2 else [Fraction(1, count)] * count
    at = "Mixture(shares)"
    if isinstance(shares, str | bytes | Mapping) or not isinstance(shares, Iterable):
        raise ArgumentError(message(f"{count} shares, one per buffer", f"`{shares!r}`", at))
    each = [_fraction(value, at) for value in shares]
    if len(each) != count:
        raise ArgumentError(message(f"{count} shares, one per buffer", f"{len(each)}", at))
    total = sum(each, Fraction())
    if abs(total - 1) > Fraction(1, _DENOMINATORS):
        raise ArgumentError(message("shares whose sum is 1", f"a sum of `{float(total):g}`", at, "divide by the sum"))
    return [value / total for value in each]


def _fraction(value: Any, at: str) -> Fraction:
    checked = check.real(value, at, low=0.0, high=1.0)
    # Narrow floats by their digits: float32's 0.29 is 29/100, too.
    return Fraction(str(value) if isinstance(value, np.floating) else checked).limit_denominator(_DENOMINATORS)


def _single(buffer: object) -> frozenset[str] | None:
    """List the paths of fields without a time axis, where time is the first axis of all others; else None."""
    if isinstance(buffer, Mixture):
        return buffer._single
    if not getattr(getattr(buffer, "item", None), "time_major", False):
        return None
    columns = getattr(getattr(buffer, "schema", None), "columns", ())
    own = {".".join(c.keys): c.field.every for c in columns}  # a field `first` of the schema takes the item's place
    return frozenset(
        {"ids", "weights", "first"} - own.keys() | {path for path, every in own.items() if every is not None}
    )


def _can_sample(buffer: Any, n: int) -> bool:
    """Tell if one buffer can be sampled; of trajectories, if there are any."""
    able = getattr(buffer, "can_sample", None)
    if callable(able):
        return bool(able(n))
    return not hasattr(buffer, "__len__") or len(buffer) > 0


def _prioritizes(buffer: Any) -> bool:
    """Tell if a buffer has priorities: it takes them, and its sampler, where it has one, draws by them."""
    if not callable(getattr(buffer, "update_priorities", None)):
        return False
    return bool(getattr(getattr(buffer, "sampler", None), "prioritizes", True))


def _on_device(buffer: Any) -> TypeGuard[DeviceBuffer | Mixture]:
    """Return True if a buffer's batches are tensors of a device."""
    return getattr(buffer, "device", None) is not None


def _joined(
    parts: Sequence[Mapping[str, Any]], single: frozenset[str] | None, above: tuple[str, ...]
) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    first, others = parts[0], parts[1:]
    for name in first:
        value = first[name]
        values = [value, *(part[name] for part in others if name in part)]
        if len(values) < len(parts):
            continue
        keys = (*above, name)
        if type(value) is not np.ndarray and all(isinstance(value, Mapping) for value in values):
            joined[name] = _joined(values, single, keys)
            continue
        axis = 0 if single is None or ".".join(keys) in single else 1
        for other in values[1:]:
            if not _alike(value, other, axis):
                wanted, got = f"{_described(value, axis)}, as in the replay", _described(other, axis)
                raise SchemaError(message(wanted, got, "$." + ".".join(keys)))
        if hasattr(value, "detach"):
            import torch

            joined[name] = torch.cat(values, dim=axis)
        else:
            joined[name] = np.concatenate(values, axis=axis)
    return joined


def _alike(one: Any, other: Any, axis: int) -> bool:
    """Tell if two arrays, or tensors, differ at most in the length of an axis."""
    if type(one) is not type(other) or one.dtype != other.dtype:
        return False
    return _item_shape(one, axis) == _item_shape(other, axis)


def _item_shape(array: Any, axis: int) -> tuple[int, ...]:
    shape = tuple(array.shape)
    return shape[1:] if not axis else shape[:1] + shape[2:]


def _described(value: Any, axis: int) -> str:
    return "a mapping" if isinstance(value, Mapping) else f"`{value.dtype}` of shape `{_item_shape(value, axis)}`"
