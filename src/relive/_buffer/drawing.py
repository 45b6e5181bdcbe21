"""Draws and updates of priorities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base import check
from .._base.capabilities import completed
from .._base.check import no_priorities
from .._base.types import Float32, Float64, Int64
from .._ring.kernels import active
from .._ring.plans import State
from ..batch import Batch
from ..errors import ArgumentError, NotEnoughData, message
from ..items import Item
from ..samplers import Sampler, Share
from ..samplers._protocol import Draw
from .arguments import ids_of, shortage, stale, td_errors, too_many
from .core import Core
from .notices import DRAWS

if TYPE_CHECKING:
    from .._flow.limit import Limit
    from .._ring.kernel_types import ExpansionKernel
    from ..items import Fields


_NO_WEIGHTS = np.empty(0, np.float32)


def calls(core: Core) -> dict[str, Callable[..., Any]]:
    """`sample` and `update_priorities` as the kernels have them, by name: as fast as they can be made here."""
    joint = core.access.joint
    if core.limit is not None or (joint is None and not core.access.alone):
        return {}
    kernels, chooser, found = active(), core.index.chooser, dict[str, Callable[..., Any]]()
    if chooser is None:
        return found
    lock, numbers = core.lock.reentrant, core.tally.numbers
    expansion: ExpansionKernel | None = getattr(core.expander, "kernel", None)
    if expansion is not None:
        found["sample"] = kernels.sampling(
            lock,
            chooser,
            expansion,
            core.tally,
            numbers,
            core.notices.numbers,
            DRAWS,
            core.most,
            Batch,
            partial(drawn, core),
            joint,
            partial(redraw, core),
        )
    if core.try_update is not None:
        found["update_priorities"] = kernels.updating(lock, chooser, numbers, partial(updated, core), joint)
    keeping = core.tally.keeping
    return found if keeping is None else keeping.around(core, found)


def sample(core: Core, batch_size: Any, beta: Any = None) -> Batch:
    """Implement `ReplayBuffer.sample`."""
    keeping = core.tally.keeping
    return (
        drawn(core, batch_size, beta)
        if keeping is None
        else keeping.sample(core, partial(drawn, core), batch_size, beta=beta)
    )


def drawn(core: Core, batch_size: Any = None, beta: Any = None) -> Batch:
    """Draw and count a batch, for any arguments."""
    if type(batch_size) is not int or batch_size < 1:
        batch_size = check.integer(batch_size, "ReplayBuffer.sample(batch_size)", minimum=1)
    if beta is not None:
        beta = check.real(beta, "ReplayBuffer.sample(beta)", low=0.0)
    if batch_size > core.most:
        raise too_many(core.most, batch_size, "ReplayBuffer.sample(batch_size)")
    if core.notices.due:
        core.notices.say(core.ring)
    if core.limit is not None:
        return draw_in_time(core, core.limit, batch_size, beta)
    with core.lock.alone():
        batch = draw(core, batch_size, beta)
        core.tally.count(drawn=batch_size)
        return batch


def draw(core: Core, n: int, beta: float | None) -> Batch:
    """Draw `n` items without counting them; the caller has the lock."""
    least = 1 if core.sampler.replacement else n
    drawable = core.refresh()
    if drawable < least:
        raise too_few(core, drawable, least, "ReplayBuffer.sample")
    if beta is not None and core.update is None:
        raise no_priorities(core.sampler, "$.beta")
    return _noted(core, core.access.draw(core, n, beta))


def redraw(core: Core, slots: Int64, weights: Float32, masses: Float64 | None, exponent: float, beta: Any) -> Batch:
    """Draw what a native draw had chosen, and other processes wrote over; the caller has the lock."""
    batch = _noted(core, core.access.draw(core, len(slots), beta, Draw(slots, weights, masses, exponent)))
    core.tally.count(drawn=len(slots))
    return batch


def _noted(core: Core, fields: Fields) -> Batch:
    """Make a batch, and keep of it what later calls refer to."""
    tally = core.tally
    tally.note(fields["ids"], fields["weights"])
    if not tally.updates and core.update is not None:
        core.notices.drew_without_updates(core.index.report)
    return Batch(fields)


def too_few(core: Core, drawable: int, least: int, at: str) -> NotEnoughData:
    """Make the error of a draw of at least `least` items, of which `drawable` can be drawn."""
    ring = core.ring
    used = completed(core.sampler, Sampler).consumes
    stored = ring.tally()["stored"]
    return shortage(least, ring.drawable, drawable, ring.waiting, ring.window.span, stored, at, used)


def draw_in_time(core: Core, limit: Limit, n: int, beta: float | None) -> Batch:
    """Draw and count as soon as the limiter allows it."""
    since = None
    while True:
        with core.lock.alone():
            if limit.can_sample(n) and there(core, n):
                batch = draw(core, n, beta)
                count(core, n)
                return batch
        since = limit.wait_to_sample(n, since, there=partial(there, core, n))


def there(core: Core, n: int) -> bool:
    """Return False where a draw of `n` items should wait for new ones, as those that there were are used up."""
    if not completed(core.sampler, Sampler).consumes:
        return True
    with core.lock.reentrant:
        return core.refresh() >= n


def count(core: Core, items: int) -> None:
    """Count items as drawn; the caller has the lock."""
    core.tally.count(drawn=items)
    if core.limit is not None:
        core.limit.sampled(items)


def count_update(core: Core, given: int, dropped: int) -> None:
    """Count an update of `given` priorities, `dropped` of which had no item; the caller has the lock."""
    core.tally.count(updates=given, stale=dropped)
    core.access.count(given, dropped)


def can_sample(core: Core, batch_size: Any) -> bool:
    """Implement `ReplayBuffer.can_sample`."""
    try:
        wanted = check.integer(batch_size, "ReplayBuffer.can_sample", minimum=1)
    except ArgumentError:
        return False
    if core.access.forked:
        return False
    nested = core.lock.taken()
    with core.lock.reentrant:
        # The outer call may have changes half done, which a sampler must not take in.
        drawable = core.ring.drawable if nested else core.refresh()
        enough = wanted <= core.most and drawable >= (1 if core.sampler.replacement else wanted)
        return enough and (core.limit is None or core.limit.can_sample(wanted))


def update_priorities(core: Core, ids: Any, td_error: Any) -> int:
    """Implement `ReplayBuffer.update_priorities`."""
    keeping = core.tally.keeping
    return updated(core, ids, td_error) if keeping is None else keeping.update(partial(updated, core), ids, td_error)


def updated(core: Core, ids: Any = None, td_error: Any = None) -> int:
    """Set and count priorities, for any arguments."""
    if core.try_update is not None:
        with core.lock.alone():
            if core.try_update(ids, td_error):
                count_update(core, len(ids), 0)
                return len(ids)
    at = "ReplayBuffer.update_priorities"
    checked = ids_of(ids, at)
    errors = td_errors(td_error, checked)
    with core.lock.alone():
        core.access.again(core.index.refresh)
        slots, states = core.ring.locate(checked)
        keep = None
        if states is not None:
            never = states == State.NEVER_ISSUED
            if never.any():
                raise stale(checked, states, never, at)
            keep = states == State.DRAWABLE
        # A slot must not get the priority of a row that another process has replaced by now.
        unknown = core.access.unknown(checked)
        if unknown is not None:
            keep = ~unknown if keep is None else keep & ~unknown
        if core.update is None:
            return 0
        core.update(slots, errors, keep)
        dropped = 0 if keep is None else len(checked) - int(keep.sum())
        count_update(core, len(checked), dropped)
        return len(checked) - dropped


def ids(core: Core, item: Item | None) -> Int64:
    """Act as `ReplayBuffer.ids` says."""
    with core.lock.alone():
        core.access.look()
        if item is not None:
            return core.readers.of(item, "ReplayBuffer.ids(item)").ids()
        return core.ring.kernel.drawable()


def read(core: Core, ids: Any, item: Item | None) -> Batch:
    """Act as `ReplayBuffer.read` says."""
    at = "ReplayBuffer.read"
    with core.lock.alone():
        if item is None:
            found = core.access.copied(core, lambda: Draw(drawable(core, ids, at), _NO_WEIGHTS))
            return unweighted(found.fields)
        reader, checked = core.readers.of(item, f"{at}(item)"), ids_of(ids, at)
        while True:
            core.access.look()
            slots, first = reader.located(checked, at)
            fields = reader.expander.expand(slots, core.tally.rng)
            gone = core.access.gone(first)
            if gone is None or not gone.any():
                return unweighted(fields)


def priorities(core: Core, ids: Any) -> Float64:
    """Implement `ReplayBuffer.priorities`."""
    checked = ids_of(ids, "ReplayBuffer.priorities")
    with core.lock.alone():
        while True:
            slots = drawable(core, checked, "ReplayBuffer.priorities")
            if core.index.priorities is None:
                return np.ones(len(slots))
            core.index.refresh()
            found = core.index.priorities(slots)
            if core.access.overtaken(checked) is None:
                return found


def probability(core: Core, ids: Any) -> Float64:
    """Implement `ReplayBuffer.probability`."""
    at = "ReplayBuffer.probability"
    checked = ids_of(ids, at)
    if core.index.probability is None:
        raise ArgumentError(message("a sampler that knows probabilities", f"`{core.sampler!r}`", at))
    with core.lock.alone():
        while True:
            slots = drawable(core, checked, at)
            core.index.refresh()
            found = core.index.probability(slots)
            if core.access.overtaken(checked) is None:
                return found


def drawable(core: Core, ids: Any, at: str) -> Int64:
    """Return the slots of drawable ids.

    Raises:
        StaleId: One cannot.
    """
    checked = ids_of(ids, at)
    core.access.look()
    slots, states = core.ring.locate(checked)
    if states is not None:
        raise stale(checked, states, states != State.DRAWABLE, at)
    return slots


def unweighted(fields: Fields) -> Batch:
    """Make a batch of items that no sampler chose; their weights are 1."""
    fields["weights"] = np.ones(len(fields["ids"]), np.float32)
    return Batch(fields)


# What lets several buffers be drawn from as if they were one. These draws use no generator, move no clock of an
# `Anneal` and are not counted: all that belongs to the caller, who chooses the numbers.


def indivisible(sampler: Sampler, lacking: str, at: str) -> ArgumentError:
    """Make the error of a draw over several buffers, given a sampler whose index has no method `lacking`."""
    wanted = "a sampler whose draws can be divided among several buffers"
    why = completed(sampler, Sampler).indivisible or f"its index has no `{lacking}`"
    return ArgumentError(message(wanted, f"`{sampler!r}`", at, why))


def share(core: Core) -> Share:
    """Tell the part of a buffer in a draw over several.

    Raises:
        ArgumentError: The sampler's draws cannot be divided: `Ranked`, as a rank is among all items.
    """
    with core.lock.alone():
        share_of = core.index.share
        if share_of is None:
            raise indivisible(core.sampler, "share", "Shard.share")
        core.index.refresh()
        return share_of()


def draw_at(core: Core, fractions: Any) -> tuple[Batch, Float64, Share]:
    """Draw the items at given fractions of the total, as `sample` does at the numbers of its generator.

    Items lie in the order in which a stratified draw goes through them, each as wide as its `priority**alpha`. With
    `Uniform(over="episodes")` a fraction names an episode and an item in it; without replacement the numbers choose one
    item after the other among those that are left.

    Args:
        core: Of the buffer.
        fractions: Numbers in [0, 1), `[B]`, B >= 1.

    Returns:
        The batch, whose weights are 1; what each of its items is drawn in proportion to, float64 `[B]`; and the
        buffer's share at the same moment. With these, `masses / share.total` are the items' probabilities.

    Raises:
        NotEnoughData: Nothing can be drawn, or, without replacement, fewer items than asked for.
        ArgumentError: Numbers outside [0, 1), or a sampler whose draws cannot be divided.
    """
    at = "Shard.draw"
    check.unmasked(fractions, f"{at}(fractions)", ArgumentError)
    try:
        numbers = np.asarray(fractions, np.float64, order="C")
    except (TypeError, ValueError) as error:
        got = f"`{type(fractions).__name__}`"
        raise ArgumentError(message("numbers in [0, 1), `[B]`", got, f"{at}(fractions)")) from error
    inside = (numbers >= 0) & (numbers < 1)
    if numbers.ndim != 1 or not len(numbers) or not inside.all():
        got = f"shape `{numbers.shape}`" if np.all(inside) else f"`{numbers[~inside][0]}`"
        raise ArgumentError(message("numbers in [0, 1), `[B]`", got, f"{at}(fractions)"))
    share_of, slots_at = core.index.share, core.index.draw_at
    if share_of is None or slots_at is None:
        raise indivisible(core.sampler, "share" if share_of is None else "draw_at", at)
    least = 1 if core.sampler.replacement else len(numbers)
    shares: list[Share] = []

    def choose() -> Draw:
        items = core.refresh()
        if items < least:
            raise too_few(core, items, least, at)
        shares.append(share_of())
        slots, masses = slots_at(numbers)
        return Draw(slots, np.ones(len(slots), np.float32), masses)

    with core.lock.alone():
        found = core.access.copied(core, choose)
    masses = found.draw.masses
    return unweighted(found.fields), np.ones(len(numbers)) if masses is None else masses, shares[-1]


def raise_priority(core: Core, raw: float) -> None:
    """Give new items at least this raw priority from now on: the largest that was set in another buffer.

    Raises:
        ArgumentError: It is no priority, or the sampler has none, or its draws cannot be divided.
    """
    at = "Shard.raise_priority"
    checked = check.real(raw, f"{at}(raw)", low=0.0)
    with core.lock.alone():
        if core.update is None:
            raise no_priorities(core.sampler, at)
        raise_to = core.index.raise_priority
        if raise_to is None:
            raise indivisible(core.sampler, "raise_priority", at)
        core.index.refresh()  # steps that were added before have the largest priority of then
        raise_to(checked)
