"""Inspect a directory of saves, and verify its checksums."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import numpy as np

from .._base.capabilities import completed
from .._base.frozen import Frozen
from .._base.types import Array, Float64, Int64
from .._buffer.saved_as import built, text_of
from .._disk.checking import Check, Progress, failures
from .._disk.files import TEMPORARY, Folder
from .._disk.json_files import damaged
from .._disk.tensors import TensorReader
from .._ring.lanes import CUTS, END, FIRST, HISTORY, LOST, STEP, STEPS, TERMINATED, TRUNCATED
from .._ring.recount import steps_in
from .._schema.fields import is_image
from ..errors import StorageError, message
from ..samplers import Sampler
from ..schema import Column, Schema
from . import _device_saves, _manifest
from ._examples import examples
from ._filling import carried_by, check_limiter, check_sampler
from ._lanes import Lanes
from ._manifest import File, Manifest
from ._names import LIMITER, name_of
from ._reading import OpenSave, unread
from ._steps import since

S = TypeVar("S")
T = TypeVar("T")
_CHOICES = ("item", "sampler", "storage", "limiter")


class Inspection(Frozen, kw_only=True):
    """The newest save of a directory, or the one that was asked for.

    Attributes:
        path: The directory.
        number: The save.
        saves: All complete saves, the newest first: number, and bytes of its files.
        files: The files of the save: name and bytes.
        unused: Files that no complete save needs.
        schema: The fields of a step.
        fields: For each field its name, `dtype`, shape, and the bytes of its stored values.
        compressed: For each field that is compressed its bytes in the files.
        choices: `item`, `sampler`, `storage` and, if there is one, `limiter` as text.
        lanes: Number of lanes.
        rows: Rows of a lane.
        steps: Steps that a lane keeps.
        stored: Steps stored in each lane, int64 `[L]`.
        finals: Rows of each lane that hold only an observation, int64 `[L]`.
        added: Steps ever added.
        drawn: Items ever drawn.
        cuts: Streams cut.
        lengths: Steps of each episode that is stored as a whole, int64 `[E]`.
        returns: Sums of its rewards, float64 `[E]`; empty unless rewards are single numbers.
        rewards: Those of all stored steps, float64.
        ages: Rows of its lane that are newer, for each item that can be drawn, int64 `[N]`.
        priorities: Their raw priorities, float64 `[N]`; empty without priorities.
        shares: Their probabilities times N, float64 `[N]`: 1 is an even share. Empty where the sampler is not known.
        images: For each field of images its name and up to 12 examples, spread over the stored steps: lane, row, image.

    `inspect` has an example.
    """

    path: str
    number: int
    saves: tuple[tuple[int, int], ...]
    files: tuple[tuple[str, int], ...]
    unused: tuple[str, ...]
    schema: Schema
    fields: tuple[tuple[str, str, tuple[int, ...], int], ...]
    compressed: dict[str, int]
    choices: dict[str, str]
    lanes: int
    rows: int
    steps: int
    stored: Int64
    finals: Int64
    added: int
    drawn: int
    cuts: int
    lengths: Int64
    returns: Float64
    rewards: Float64
    ages: Int64
    priorities: Float64
    shares: Float64
    images: tuple[tuple[str, list[tuple[int, int, Array]]], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the save's files."""
        return sum(size for _, size in self.files)


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Return whether a directory has saves of a buffer."""
    with closing(Folder(path)) as folder:
        return bool(_manifest.numbers(folder))


def inspect(path: str | os.PathLike[str], number: int | None = None) -> Inspection:
    """Inspect a save of any buffer: its manifest, its small arrays, the rewards, and a few images are read.

    Args:
        path: The directory.
        number: The save; None: the newest.

    Raises:
        StorageError: There is none, or it cannot be read.
        CorruptionError: What is read is damaged.

    >>> import numpy as np, relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> ids = buffer.add(obs=np.zeros(3), action=0.5, reward=1, next_obs=np.ones(3), terminated=True, truncated=False)
    >>> path = tempfile.mkdtemp()
    >>> saved = buffer.save(path)
    >>> found = inspect(path)
    >>> found.stored.tolist(), found.rewards.tolist(), found.lengths.tolist()
    ([1], [1.0], [1])
    """
    with closing(Folder(path)) as folder:
        return replaced(partial(_complete, folder), lambda numbers: _inspection(folder, numbers, number))


def _inspection(folder: Folder, numbers: Sequence[int], number: int | None) -> Inspection:
    manifests = {n: _manifest.read(folder, n) for n in numbers}
    chosen = numbers[0] if number is None else number
    if chosen not in manifests:
        raise StorageError(message(f"one of the saves {sorted(numbers)}", f"`{chosen}`", "inspect(number)"))
    return Inspection(
        path=folder.path,
        number=chosen,
        saves=tuple((n, manifests[n].nbytes) for n in numbers),
        files=tuple((name, file.nbytes) for name, file in manifests[chosen].files),
        unused=tuple(sorted(_unused(folder) & _unused(folder))),  # not those that go or come meanwhile
        **_read(folder, manifests[chosen]),
    )


def _read(folder: Folder, manifest: Manifest) -> dict[str, Any]:
    if "device" in manifest.choices:
        return _device_saves.contents(folder, manifest)
    with OpenSave(folder, manifest.number) as save:
        return _contents(save)


def on_device(path: str | os.PathLike[str], number: int | None = None) -> bool:
    """Return whether a `DeviceBuffer` saved there; False where that cannot be read."""
    with closing(Folder(path)) as folder:
        for each in _manifest.numbers(folder) if number is None else [number]:
            with contextlib.suppress(StorageError):  # damaged, or replaced meanwhile
                return "device" in _manifest.read(folder, each).choices
    return False


def _unused(folder: Folder) -> set[str]:
    """List the files that no complete save needs."""
    names = {n for n in folder.sizes() if n.startswith(TEMPORARY) or _manifest.number_of(n) is not None}
    return names - needed(folder)


def needed(folder: Folder) -> set[str]:
    """List the manifests of all complete saves, and the files that they name."""
    found = set[str]()
    for number in _manifest.numbers(folder):
        found.add(_manifest.manifest_name(number))
        with contextlib.suppress(StorageError):  # it is gone already, or damaged
            found |= {name for name, _ in _manifest.read(folder, number).files}
    return found


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> list[str]:
    """Read every file of every complete save and compare all bytes with their checksums.

    Args:
        path: The directory; it is not changed.
        progress: Called after each file with the number of files read so far, and of all files.

    Returns:
        What is damaged, with file and offset; empty if nothing is.

    Raises:
        StorageError: There is no complete save.

    >>> import relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> path = tempfile.mkdtemp()
    >>> saved = buffer.save(path)
    >>> verify(path)
    []
    """
    with closing(Folder(path)) as folder:
        return [text for _, text in failures(checks(folder), progress, partial(needed, folder))] or misfits(folder)


def replaced(look: Callable[[], S], read: Callable[[S], T]) -> T:
    """Read what is there; again, if it cannot be read since another process has just replaced it.

    Args:
        look: Says what is there.
        read: Called with that.

    Raises:
        StorageError: It cannot be read, and is there still.
    """
    while True:
        before = look()
        try:
            return read(before)
        except StorageError:
            if look() == before:
                raise


def checks(folder: Folder) -> list[Check]:
    """List all files of every complete save, of which several have some in common.

    Raises:
        StorageError: There is no complete save.
    """
    found: dict[object, Check] = {}
    for number in _complete(folder):
        try:
            files = _manifest.read(folder, number).files
        except StorageError as error:
            found[number] = Check(_manifest.manifest_name(number), partial(_raise, error))
        else:
            found |= {
                (name, *vars(file).values()): Check(name, partial(_damage, folder, name, file)) for name, file in files
            }
    return [*found.values()]


def misfits(folder: Folder) -> list[str]:
    """List the faults of saves whose files are sound, but do not fit each other."""
    seen = set[File]()
    checks = [Check(_manifest.manifest_name(n), partial(_misfits, folder, n, seen)) for n in _manifest.numbers(folder)]
    return [text for _, text in failures(checks, None, partial(needed, folder))]


def _raise(error: StorageError) -> list[str]:
    raise error


def _damage(folder: Folder, name: str, file: File) -> Iterator[str]:
    with TensorReader(folder, name, file.nbytes, file.checksum) as reader:
        yield from (f"{reader.at}, offset {offset}: not what was written" for offset in reader.damage())


def _misfits(folder: Folder, number: int, seen: set[File]) -> Iterator[str]:
    """Yield the texts of a load's refusals; files that were `seen` with another save are not unpacked again."""
    if "device" in _manifest.read(folder, number).choices:
        return
    with OpenSave(folder, number) as save:
        facts, lanes = save.manifest.choices, save.lanes
        with damaged(save.at):
            made = {name: built(name, facts[name]) for name in _CHOICES if name in facts}
            if made["sampler"] is not None:
                check_sampler(made["sampler"], lanes, save.rows, save.whole())
            if made.get("limiter") is not None:
                check_limiter(save.arrays[LIMITER], lanes.steps)
        for part, reader in save.parts:
            for column in save.kept if part.file not in seen else ():
                lost = save.entries_of(part, reader, column).lost(())
                if lost.any():
                    yield unread(reader, column, lost)
            seen.add(part.file)


def _complete(folder: Folder) -> list[int]:
    numbers = _manifest.numbers(folder)
    if not numbers:
        raise StorageError(message("a complete save of a buffer", "none", folder.path))
    return numbers


def _contents(save: OpenSave) -> dict[str, Any]:
    lanes, facts = save.lanes, save.manifest.choices
    with damaged(save.at):
        choices = {name: built(name, facts[name]) for name in _CHOICES if name in facts}
        texts = {name: text_of(facts[name]) if each is None else repr(each) for name, each in choices.items()}
    steps, stored = np.flatnonzero(lanes.marks & STEP), steps_in(lanes.stored)
    rewards = _rewards(save)[steps]
    begins, ends = _episodes(lanes)
    single = not save.schema.reward.shape
    items = lanes.drawable()
    lane, rows = lanes.rows()
    images = [c for c in save.schema.columns if is_image(c.field.dtype, c.field.shape) and not c.field.every]
    priorities, shares = _draws(save, choices["sampler"], items, lane[items])
    return {
        "schema": save.schema,
        "fields": tuple(_field(save, column) for column in save.schema.columns),
        "compressed": _compressed(save),
        "choices": texts,
        "lanes": len(lanes),
        "rows": save.rows,
        "steps": save.steps,
        "stored": stored,
        "finals": lanes.head - lanes.first - stored,
        "added": int(lanes.counters[:, STEPS].sum()),
        "drawn": save.manifest.counts["drawn"],
        "cuts": int(lanes.counters[:, CUTS].sum()),
        "lengths": ends - begins,
        "returns": np.array([rewards[i:j].sum() for i, j in zip(begins, ends, strict=True)] if single else [], float),
        "rewards": rewards.reshape(-1),
        "ages": lanes.head[lane[items]] - 1 - rows[items],
        "priorities": priorities,
        "shares": shares,
        "images": tuple((name_of(c.keys), examples(c, lane[steps], rows[steps], save.value)) for c in images),
    }


def _rewards(save: OpenSave) -> Float64:
    """Read the rewards of all rows, float64."""
    column, lanes = next(column for column in save.schema.columns if column.keys == ("reward",)), save.lanes
    found = np.zeros((len(lanes.marks), *column.field.shape))
    for piece in save.pieces([column]):
        lane, rows, at = since(piece.ranges, lanes.first)
        stored = rows < lanes.head[lane]
        found[(lanes.stored.begin - lanes.first)[lane[stored]] + rows[stored]] = piece.values[0][at[stored]]
    return found


def _episodes(lanes: Lanes) -> tuple[Int64, Int64]:
    """Find the first and last steps of episodes that are stored as a whole, among all steps, lane after lane."""
    marks, lane = lanes.marks, lanes.rows()[0]
    steps = (marks & STEP) > 0
    # The mark of the row before each step.
    before = (np.append(0, marks[:-1]) * (lane == np.append(-1, lane[:-1])))[steps]
    kept, lane = marks[steps], lane[steps]
    first = ((kept & FIRST) > 0) | ((before & (HISTORY | LOST)) == HISTORY)
    ends = np.flatnonzero(kept & END) + 1
    begins = np.maximum(np.append(0, ends)[:-1], np.searchsorted(lane, lane[ends - 1]))
    whole = ((kept[ends - 1] & (TERMINATED | TRUNCATED)) > 0) & first[begins]
    return begins[whole], ends[whole]


def _draws(save: OpenSave, sampler: Sampler | None, items: Int64, lane: Int64) -> tuple[Float64, Float64]:
    """Return the raw priorities of the items, and their shares of the draws; `lane`: of each item."""
    carried, slots = carried_by(save, items), {name: array[items] for name, array in save.lanes.slots.items()}
    slots["age"] = np.searchsorted(lane, lane, "right") - 1 - np.arange(len(lane))
    with damaged(save.at):
        masses = None if sampler is None else completed(sampler, Sampler).masses
        mass = np.empty(0) if masses is None else masses(len(items), slots)
    total = mass.sum()
    raw = np.empty(0) if carried is None else carried.raw
    return raw, mass * (len(mass) / total) if total > 0 else np.empty(0)


def _field(save: OpenSave, column: Column) -> tuple[str, str, tuple[int, ...], int]:
    field, every = column.field, column.field.every or 1
    units = int((save.lanes.head // every - save.lanes.first // every).sum()) * field.saved
    return name_of(column.keys), field.dtype.name, field.full_shape, units * field.nbytes


def _compressed(save: OpenSave) -> dict[str, int]:
    names = [name_of(column.keys) for column in save.schema.columns if column.field.compress is not None]
    with damaged(save.at):
        return {name: sum(reader.tensors[name].nbytes for _, reader in save.parts) for name in names}
