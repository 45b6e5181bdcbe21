"""Saves of device buffers, as `relive inspect` shows them and `relive salvage` takes what is whole of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import numpy as np

from .._base.types import Array, Bytes, Float64, Int64
from .._buffer.saved_as import built
from .._buffer.schemas import schema_of
from .._disk.files import Folder, empty_folder
from .._disk.json_files import damaged
from .._disk.tensors import TensorReader
from .._schema.fields import is_image
from ..checkpoints import _manifest
from ..checkpoints._names import name_of
from ..checkpoints._steps import RANGES
from ..checkpoints.inspection import Inspection, examples, looked
from ..checkpoints.salvage import Salvage, none_used
from ..errors import StorageError
from ..schema import Column
from ._loading import loaded
from ._ring import ABSENT, DRAWN
from ._step import CUT, FIRST, STEP, TERMINATED, TRUNCATED


def inspect(path: str | os.PathLike[str], number: int | None = None) -> Inspection:
    """Inspect a save as `relive.checkpoints.inspection.inspect` does; the tensors of steps are not loaded."""
    return looked(path, number, _contents)


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvage:
    """Write the newest save that is whole to another directory, as an ordinary buffer's.

    Raises:
        StorageError: None is whole, or `target` is not empty or cannot be written.
    """
    with closing(Folder(source)) as folder, empty_folder(target):
        skipped: list[str] = []
        for number in _manifest.numbers(folder):
            try:
                host = loaded(folder, number, "cpu", 0, iter(())).host()
            except StorageError as error:
                skipped.append(f"save {number} cannot be used: {error}")
                continue
            host.save(target)
            stored = (host.column("ids") >= 0).sum(1).tolist()
            return Salvage(number, tuple(stored), (0,) * len(stored), tuple(skipped))
        raise none_used(folder, skipped)


class _SavedCalls(NamedTuple):
    """The steps in the files of a save.

    Attributes:
        rows: D.
        lanes: L.
        state: The file of the tensors that are saved whole.
        parts: The files of steps with their ranges of calls; a later one is right about a call that several have.
    """

    rows: int
    lanes: int
    state: TensorReader
    parts: list[tuple[TensorReader, Int64]]

    def values(self, column: Column, first: int, last: int) -> Array:
        """Read a field of the calls `[first, last)`, `[T, L, ...]`."""
        field, name, shape = column.field, f"fields.{'.'.join(column.keys)}", (-1, self.lanes, *column.field.shape)
        row = self.lanes * field.nbytes
        if field.writable:
            whole = self.state.rows(name)[: self.rows * row].view(field.dtype).reshape(shape)
            return np.asarray(whole[np.arange(first, last) % self.rows])
        found = np.zeros((last - first, *shape[1:]), field.dtype)
        for reader, ranges in self.parts:
            done = 0
            for _, begin, end in ranges.tolist():
                low, high = max(begin, first), min(end, last)
                if low < high:
                    raw = reader.rows(name, (done + low - begin) * row, (done + high - begin) * row)
                    found[low - first : high - first] = raw.view(field.dtype).reshape(shape)
                done += end - begin
        return found


def _contents(folder: Folder, manifest: _manifest.Manifest) -> dict[str, Any]:
    facts, at = manifest.choices, f"{folder.path}/{_manifest.manifest_name(manifest.number)}"
    with damaged(at), ExitStack() as stack:
        opened = [
            stack.enter_context(TensorReader(folder, name, file.nbytes, file.checksum)) for name, file in manifest.files
        ]
        schema, (state, *parts) = schema_of(facts["schema"]), opened
        item, sampler = (built(name, facts[name]) for name in ("item", "sampler"))
        rows, lanes, window, device = facts["device"]["rows"], facts["num_envs"], facts["window"], facts["device"]
        call, floor = (int(state.rows(name).view(np.int64)[0]) for name in ("clock", "floor"))
        calls = np.arange(max(call - facts["steps"], -(-floor // lanes), 0), call)
        flags = state.rows("flags").reshape(rows, lanes)[calls % rows]
        kept = _SavedCalls(rows, lanes, state, [(part, part.rows(RANGES)) for part in parts])
        counts, owner = (state.rows(name).view(np.int64) for name in ("counts", "owner"))
        there = (flags & STEP) > 0
        items = there & ((calls < call + 1 - window["span"]) & (calls % window["starts"] == 0))[:, None]
        mass = np.empty(0, np.float32)
        if "draws.leaves" in state.tensors:
            leaves = state.rows("draws.leaves").view(np.float32)[: rows * lanes].reshape(rows, lanes)[calls % rows]
            items &= leaves > 0
            mass = leaves.T[items.T].astype(float)
        rewards = kept.values(next(c for c in schema.columns if c.keys == ("reward",)), call - len(calls), call)
        lengths, returns = _episodes(flags, rewards)
        lane, place = np.nonzero(there.T)
        images = [c for c in schema.columns if is_image(c.field.dtype, c.field.shape) and not c.field.every]

        def value(column: Column, lane: int, call: int) -> Array:
            return np.asarray(kept.values(column, call, call + 1)[0, lane])

        alpha = getattr(sampler, "alpha", 0.0)
        return {
            "schema": schema, "compressed": {}, "lanes": lanes, "rows": rows, "steps": facts["steps"],
            "fields": tuple(_field(c, opened) for c in schema.columns),
            "choices": {"item": repr(item), "sampler": repr(sampler), "device": device["kind"]},
            "stored": there.sum(0), "cuts": int(((flags & CUT) > 0).sum()),
            "finals": np.bincount(owner[:-lanes][owner[:-lanes] >= floor] % lanes, minlength=lanes),
            "added": call * lanes - int(counts[ABSENT]), "drawn": int(counts[DRAWN]),
            "lengths": lengths, "returns": returns,
            "rewards": rewards.swapaxes(0, 1)[there.T].astype(float).reshape(-1),
            "ages": call - 1 - np.broadcast_to(calls, items.T.shape)[items.T],
            "priorities": mass ** (1 / alpha) if alpha else np.ones_like(mass),
            "shares": mass / mass.mean() if len(mass) else mass,
            "images": tuple((name_of(c.keys), examples(c, lane, calls[place], value)) for c in images),
        }  # fmt: skip


def _episodes(flags: Bytes, rewards: Array) -> tuple[Int64, Float64]:
    """Return lengths and returns of the episodes that are stored as a whole, lane after lane."""
    place = np.arange(len(flags))[:, None]
    begin = np.maximum.accumulate(np.where(flags & FIRST, place, -1), axis=0)
    whole = ((flags & (TERMINATED | TRUNCATED)) > 0) & (begin >= 0)
    lengths = (place - begin + 1).T[whole.T]
    if rewards.ndim > 2:
        return lengths, np.empty(0)
    summed = np.concatenate([np.zeros((1, flags.shape[1])), rewards.cumsum(0, dtype=float)])
    return lengths, (summed[1:] - np.take_along_axis(summed, np.maximum(begin, 0), axis=0)).T[whole.T]


def _field(column: Column, files: Sequence[TensorReader]) -> tuple[str, str, tuple[int, ...], int]:
    name, field = ".".join(column.keys), column.field
    kept = (reader.tensors.get(f"{kind}.{name}") for reader in files for kind in ("fields", "finals"))
    return name_of(column.keys), field.dtype.name, field.full_shape, sum(each.nbytes for each in kept if each)
