"""Building a buffer from saves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from .._base import check
from .._base.arrays import ArraySpec, Memory
from .._base.check import distinct, generator, integers
from .._base.priorities import valid
from .._base.types import Int64
from .._base.warned import warn
from .._buffer.arguments import choice
from .._buffer.choices import Choices
from .._buffer.core import Core
from .._buffer.saved_as import built, not_given
from .._disk.files import Folder
from .._disk.json_files import damaged
from .._flow.limiter import RateLimiter
from .._ring import kernels
from .._ring.lanes import BOUNDARIES, HEAD, boundaries_of, resized, rows_of
from .._ring.plans import State
from ..errors import ArgumentError, CorruptionError, MissingSave, StorageError, event, message
from ..items import Item, Transitions
from ..processes.opening import opened
from ..samplers import Sampler, Uniform
from ..storage import Ram, Storage
from . import _manifest
from ._filling import carried_by, check_fresh, fill_limiter, fill_ring, fill_sampler
from ._lanes import MOST
from ._names import CLOCK, LAST_IDS, LAST_WEIGHTS, LIMITER
from ._reading import OpenSave
from ._saving import Saver
from ._snapshot import Facts, restore

Path: TypeAlias = "str | os.PathLike[str]"
_LIKE = {"item": Transitions(), "sampler": Uniform()}


def loaded(
    path: Path | Sequence[Path],
    number: int | None,
    lanes: Sequence[int] | Sequence[Sequence[int]] | None,
    capacity: int | None,
    boundaries: float | None,
    item: Item | None,
    sampler: Sampler | None,
    storage: Storage | None,
    limiter: RateLimiter | None,
    seed: int | np.random.Generator | None,
) -> Core:
    """Build the core of a buffer from saves; the arguments are those of `relive.load`."""
    several = not isinstance(path, str | os.PathLike)
    paths: list[Any] = [*path] if isinstance(path, Sequence) and several else [path]
    if not paths:
        raise ArgumentError(message("at least one directory", "none", "load(path)"))
    if number is not None:
        number = check.integer(number, "load(number)", minimum=1)
    with ExitStack() as open_files:
        folders = [open_files.enter_context(closing(Folder(check.path(each, "load(path)")))) for each in paths]
        try:
            saves = [open_files.enter_context(_opened(folder, number)) for folder in folders]
            chosen = _chosen(lanes, saves, several)
            found = Loading(saves, chosen, capacity, boundaries, item, sampler, storage, limiter)
            return found.core(seed, alone=lanes is None and len(saves) == 1)
        except CorruptionError as error:
            if number is not None or several:
                raise
            raise _with_remedy(error, folders[0]) from None


T = TypeVar("T")


def _opened(folder: Folder, number: int | None) -> OpenSave:
    return opened_save(folder, number, OpenSave)


def opened_save(folder: Folder, number: int | None, opened: Callable[[Folder, int], T]) -> T:
    """Open a save, the newest one where no number is given."""
    while True:
        numbers = _manifest.numbers(folder)
        if not numbers:
            raise MissingSave(message("a complete save of a buffer", "none", folder.path))
        wanted = numbers[0] if number is None else number
        if wanted not in numbers:
            raise StorageError(message(f"one of the saves {sorted(numbers)}", f"`{wanted}`", "load(number)"))
        try:
            return opened(folder, wanted)
        except StorageError:
            if wanted in _manifest.numbers(folder):  # else a later save has just replaced it
                raise


def _with_remedy(error: CorruptionError, folder: Folder) -> CorruptionError:
    """Add the number of the last sound save to the error about the newest one."""
    for number in _manifest.numbers(folder)[1:]:
        try:
            with OpenSave(folder, number) as save:
                if next(save.damage(), None) is None:
                    remedy = f"save {number} is sound; `relive.load(path, number={number})` loads it"
                    return CorruptionError(event(f"The newest save is damaged ({error})", folder.path, remedy))
        except StorageError:
            continue
    return error


def _chosen(lanes: Any, saves: Sequence[OpenSave], several: bool) -> list[Int64]:
    """Return the lanes of each save that are to be loaded."""
    if lanes is None:
        return [np.arange(len(save.lanes)) for save in saves]
    lists = lanes if several else [lanes]
    if len(lists) != len(saves):
        raise ArgumentError(
            message(f"a list of lanes for each of {len(saves)} directories", f"{len(lists)}", "$.lanes")
        )
    chosen = [integers(each, "$.lanes") for each in lists]
    for each, save in zip(chosen, saves, strict=True):
        outside = (each < 0) | (each >= len(save.lanes))
        if outside.any() or len(distinct(each)) != len(each):
            raise ArgumentError(
                message(f"distinct lanes from 0 to {len(save.lanes) - 1}", f"`{each.tolist()}`", "$.lanes")
            )
    if not sum(map(len, chosen)):
        raise ArgumentError(message("at least one lane", "none", "$.lanes"))
    return chosen


class Loading:
    """A buffer to build, and the saves to build it from."""

    def __init__(
        self,
        saves: Sequence[OpenSave],
        chosen: Sequence[Int64],
        capacity: int | None,
        boundaries: float | None,
        item: Item | None,
        sampler: Sampler | None,
        storage: Storage | None,
        limiter: RateLimiter | None = None,
    ) -> None:
        self._saves, self._chosen = saves, chosen
        first = saves[0]
        self.schema = first.schema
        for save in saves[1:]:
            if save.schema != self.schema:
                raise ArgumentError(message(f"saves of one schema, `{self.schema!r}`", f"`{save.schema!r}`", save.at))
        facts = first.manifest.choices
        self.item: Item = _choice("item", item, facts, first.at)
        self._saved_sampler = sampler is None  # the text of one that is built again may differ from what was saved
        self.sampler: Sampler = _choice("sampler", sampler, facts, first.at)
        with damaged(first.at):
            kept = built("storage", facts["storage"]) or Ram()
            saved = built("limiter", facts["limiter"]) if "limiter" in facts else None
        self.storage: Storage = choice(storage, kept, "storage", "load(storage)")
        self.limiter: RateLimiter | None = saved if limiter is None else limiter
        self._counts_on = saved is not None and self.limiter == saved
        self.num_envs = sum(map(len, chosen))
        self.steps = max(save.steps for save in saves)
        self.boundaries = max((save.boundaries for save in saves), key=lambda share: rows_of(self.steps, share))
        if capacity is not None:
            steps = check.integer(capacity, "load(capacity)", minimum=self.num_envs) // self.num_envs
            if steps != self.steps:
                rows = all(save.counts_rows for save in saves)
                self.boundaries = BOUNDARIES if rows else resized(self.boundaries, steps)
            self.steps = steps
        if boundaries is not None:
            self.boundaries = boundaries_of(boundaries, "load(boundaries)")
        self.rows = rows_of(self.steps, self.boundaries)
        self.item.check(self.schema, self.steps)
        for save in saves:
            if (save.lanes.head >= MOST // self.num_envs).any():
                raise ArgumentError(message("ids below 2**62", "larger ones", save.at, "load fewer lanes"))
        self.window = self.item.window(self.schema)

    def core(self, seed: int | np.random.Generator | None, *, alone: bool) -> Core:
        """Build the core. `alone`: it has all lanes of one save, which later saves continue."""
        first = self._saves[0]
        lanes, limiter = self.num_envs, self.limiter
        choices = Choices.checked(
            self.schema, lanes * self.steps, lanes, self.item, self.sampler, limiter, self.boundaries
        )
        alike = (self.rows, self.steps, self.window) == (first.rows, first.steps, first.window) and self._saved_sampler
        same = alone and (alike or choices.identity.hex() == first.manifest.choices["digest"])
        self._counts_on &= alone
        rng = first.rng if alone and seed is None else generator(seed)
        core = opened(choices, self.storage, rng, self._fill_exactly if same else self._fill_ring)
        self._fill_columns(core)
        left_out = [column.path for column in self.schema.columns if not column.field.saved]
        if left_out:
            what = f"{', '.join(f'`{path}`' for path in left_out)} of all steps is zero: `saved=False`"
            warn(event(what, first.at, "write it anew"))
        core.writer.resume()
        if alone:
            arrays = first.arrays
            restore(core, Facts(rng, first.manifest.counts, arrays[LAST_IDS], arrays[LAST_WEIGHTS]))
        if not same:
            self._carry_priorities(core)
        if alone:
            core.tally.identity = first.manifest.identity
            core.tally.saver = Saver(first.manifest.identity, first.basis, first.later())
        return core

    def _fill_exactly(self, spec: Mapping[str, ArraySpec], memory: Memory) -> bool:
        """Fill arrays as the buffer left them that was saved."""
        save = self._saves[0]
        check_fresh(memory)
        fill_ring(memory, save.lanes, 0, save.arrays[CLOCK], spec)
        fill_sampler(memory, self.sampler, save.lanes, self.rows, save.whole(), save.at)
        self._fill_limiter(memory)
        return False

    def _fill_ring(self, spec: Mapping[str, ArraySpec], memory: Memory) -> bool:
        """Fill the ring with the chosen lanes; the sampler begins with arrays of zeros."""
        check_fresh(memory)
        clock, begin = np.max([save.arrays[CLOCK] for save in self._saves], axis=0), 0
        for save, chosen in zip(self._saves, self._chosen, strict=True):
            lanes = save.lanes.refitted(chosen, self.window, self.num_envs, self.rows, self.steps)
            fill_ring(memory, lanes, begin, clock, spec)
            begin += len(chosen)
        self._fill_limiter(memory)
        return True

    def _fill_limiter(self, memory: Memory) -> None:
        """Let the limiter go on where it was, if it is the saved one."""
        save = self._saves[0]
        if self._counts_on:
            with damaged(save.at):
                fill_limiter(memory, save.arrays[LIMITER], save.lanes.steps)

    def _fill_columns(self, core: Core) -> None:
        """Copy the steps to the ring."""
        ring, begin = core.ring, 0
        oldest = np.maximum(ring.counters[:, HEAD] - self.rows, 0)
        for save, chosen in zip(self._saves, self._chosen, strict=True):
            places = _places(save, chosen, begin)
            saved = [column for column in self.schema.columns if column.field.saved]
            for every, writable in dict.fromkeys((column.field.every, column.field.writable) for column in saved):
                columns = {
                    column: array[: -1 if every is None else None]
                    for column, array in zip(self.schema.columns, ring.columns, strict=True)
                    if column in saved and (column.field.every, column.field.writable) == (every, writable)
                }
                block = ring.marks.shape[2] if every is None else 1
                placed = partial(_placed, places=places, oldest=oldest // (every or 1))
                one = ring.lanes == 1 and not writable
                alone = {c: array for c, array in columns.items() if one and array.flags.c_contiguous}
                for column, array in alone.items():
                    save.fill(column, placed, array)
                others = {c: array for c, array in columns.items() if c not in alone}
                for piece in save.pieces([*others], placed) if others else ():
                    kernels.active().set_ranges([*others.values()], ring.lanes, block, piece.ranges, piece.values)
            begin += len(chosen)

    def _carry_priorities(self, core: Core) -> None:
        """Give the items the priorities that they had under another sampler."""
        core.index.refresh()
        adopt = core.index.adopt
        if adopt is None:
            return
        begin, ids, found = 0, [], []
        for save, chosen in zip(self._saves, self._chosen, strict=True):
            at = save.lanes.drawable()
            lane, row = (each[at] for each in save.lanes.rows())
            place = _places(save, chosen, begin)[lane]
            wanted = place >= 0
            carried = carried_by(save, at[wanted])
            if carried is None:
                return
            ids.append(row[wanted] * self.num_envs + place[wanted])
            found.append(carried)
            begin += len(chosen)
        raw = np.concatenate([carried.raw for carried in found])
        if not valid(raw).all():
            raise CorruptionError(event("Priorities that are not finite", self._saves[0].at))
        located = core.ring.locate(np.concatenate(ids))
        kept = slice(None) if located.states is None else located.states == State.DRAWABLE
        adopt(located.slots[kept], raw[kept], max(carried.largest for carried in found))


def _places(save: OpenSave, chosen: Int64, begin: int) -> Int64:
    """Map each lane of a save to a lane of the buffer, -1 for none; the chosen ones are numbered from `begin` on."""
    places = np.full(len(save.lanes), -1)
    places[chosen] = begin + np.arange(len(chosen))
    return places


def _placed(ranges: Int64, places: Int64, oldest: Int64) -> Int64:
    """Map ranges of a save's lanes to the buffer's, int64 `[n, 3]`; parts that the buffer leaves out get lane -1.

    Args:
        ranges: Of the save: lane, first, last.
        places: Which lane of the buffer each lane of the save becomes, -1 for none.
        oldest: The first unit that each lane of the buffer takes.
    """
    lane, first, last = ranges.T
    place = places[lane]
    since = np.where(place < 0, last, np.clip(oldest[place], first, last))
    left = np.stack([np.full(len(lane), -1), first, since], axis=1)
    found = np.stack([left, np.stack([place, since, last], axis=1)], axis=1).reshape(-1, 3)
    return found[found[:, 1] < found[:, 2]]


def _choice(name: str, given: Any, facts: Mapping[str, Any], at: str) -> Any:
    """Return the given choice, or else the saved one."""
    if given is not None:
        return choice(given, _LIKE[name], name, f"load({name})")
    with damaged(at):
        found = built(name, facts[name])
    if found is None:
        raise not_given(name, facts[name], f"load({name})")
    return found
