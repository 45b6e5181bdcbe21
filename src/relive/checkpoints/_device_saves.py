"""Saves of device buffers, as `inspection` shows them; they are read without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from .._base.capabilities import completed
from .._base.types import Array, Bytes, Float64, Int64
from .._buffer.saved_as import built
from .._buffer.schemas import schema_of
from .._disk.device_counts import ABSENT, DRAWN
from .._disk.device_rows import CUT, FIRST, STEP, TERMINATED, TRUNCATED
from .._disk.files import Folder
from .._disk.json_files import damaged
from .._disk.tensors import TensorReader
from .._schema.fields import is_image
from ..samplers import Sampler
from ..schema import Column
from . import _manifest
from ._examples import examples
from ._names import name_of
from ._steps import RANGES


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


def contents(folder: Folder, manifest: _manifest.Manifest) -> dict[str, Any]:
    """Return what an `Inspection` says of a save, but what follows from the manifest.

    Raises:
        StorageError: A file cannot be read.
        CorruptionError: What is read is damaged.
    """
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
        mass: Float64 = np.empty(0)
        if "draws.leaves" in state.tensors:
            leaves = state.rows("draws.leaves").view(np.float32)[: rows * lanes].reshape(rows, lanes)[calls % rows]
            items &= leaves > 0
            mass = leaves.T[items.T].astype(float)
        begin = np.broadcast_to(calls, items.T.shape)[items.T]
        rewards = kept.values(next(c for c in schema.columns if c.keys == ("reward",)), call - len(calls), call)
        lengths, returns = _episodes(flags, rewards)
        lane, place = np.nonzero(there.T)
        images = [c for c in schema.columns if is_image(c.field.dtype, c.field.shape) and not c.field.every]

        def value(column: Column, lane: int, call: int) -> Array:
            return np.asarray(kept.values(column, call, call + 1)[0, lane])

        return {
            "schema": schema, "compressed": {}, "lanes": lanes, "rows": rows, "steps": facts["steps"],
            "fields": tuple(_field(c, opened) for c in schema.columns),
            "choices": {"item": repr(item), "sampler": repr(sampler), "device": device["kind"]},
            "stored": there.sum(0), "cuts": int(((flags & CUT) > 0).sum()),
            "finals": np.bincount(owner[:-lanes][owner[:-lanes] >= floor] % lanes, minlength=lanes),
            "added": call * lanes - int(counts[ABSENT]), "drawn": int(counts[DRAWN]),
            "lengths": lengths, "returns": returns,
            "rewards": rewards.swapaxes(0, 1)[there.T].astype(float).reshape(-1),
            "ages": call - 1 - begin,
            "priorities": _raw(sampler, mass), "shares": _shares(sampler, mass, begin // window["starts"]),
            "images": tuple((name_of(c.keys), examples(c, lane, calls[place], value)) for c in images),
        }  # fmt: skip


def _raw(sampler: Any, mass: Float64) -> Float64:
    """Return the raw priorities of masses."""
    alpha = next((each.alpha for each, _ in getattr(sampler, "members", [(sampler, 1)]) if each.prioritizes), 0.0)
    return np.asarray(mass ** (1 / alpha) if alpha else np.ones_like(mass))


def _shares(sampler: Any, mass: Float64, begin: Int64) -> Float64:
    """Return the probabilities of items times their number, from their masses and the numbers of their calls."""
    masses = None if sampler is None else completed(sampler, Sampler).masses
    if masses is None or not len(begin):
        return np.empty(0)
    names = ["priorities", *(f"{k}.priorities" for k in range(len(getattr(sampler, "members", ()))))]
    found = masses(len(begin), {"age": begin.max() - begin, **dict.fromkeys(names, mass)})
    return found * (len(begin) / found.sum()) if found.any() else np.empty(0)


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
