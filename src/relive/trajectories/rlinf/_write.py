"""Writing RLinf's directories: its file names, its dictionaries of tensors, its two JSON files."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..._types import Array
from ...errors import MissingExtra, SchemaError, StorageError, message
from .._block import Block
from .._catalog import NAME
from .._files import Folder
from .._layout import Layout
from .._snapshot import Held
from ._read import GENERATOR, INDEX, INDEXES, METADATA, RLinfFiles, Told, listing, told_of

_TENSORS = (
    "actions", "intervene_flags", "rewards", "terminations", "truncations", "dones", "prev_logprobs", "prev_values",
    "versions",
)  # fmt: skip
_MAPPINGS = ("forward_inputs", "curr_obs", "next_obs")
_KIND = "pt"
_USUAL_SEED = 1234  # RLinf's


class Taken(NamedTuple):
    """A trajectory that is to be written: where it is now, and the id that it gets."""

    held: Held
    position: int
    id: int


def save(held: Held, target: Folder, draws: str) -> None:
    """Save all trajectories that are held in RLinf's layout, and the state of draws.

    Files that are there already, with the same contents, are left alone. The index that names the new ones takes its
    name last, and only then go the files that it does not name: an interrupted save leaves the checkpoint before it.

    Raises:
        SchemaError: RLinf cannot load such fields.
        StorageError: The directory holds something else, or cannot be written to.
    """
    write(target, taken_from(held), held.counter, draws)


def taken_from(held: Held) -> list[Taken]:
    """All trajectories, with the ids that they have."""
    return [Taken(held, position, int(id_)) for position, id_ in enumerate(held.records["id"])]


def write(
    target: Folder,
    taken: Iterable[Taken],
    counter: int,
    draws: str | None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write trajectories as one of RLinf's directories; `progress` is told how many have been written.

    RLinf has a place for a seed, but none for how far its generator has come. Where anything has been drawn, that gets
    a file of its own, which says of which metadata it speaks, for RLinf may write these anew.
    """
    generator = {"seed": _USUAL_SEED, "drawn": False} if draws is None else json.loads(draws)
    sizes = target.sizes()
    if NAME in sizes:
        remedy = "save to another directory"
        raise StorageError(message("an empty directory, or one of RLinf's", "one of relive's", target.path, remedy))
    before = listing(target) if not sizes.keys().isdisjoint(INDEXES) else None
    if before is not None and before.kind != _KIND:
        remedy = "save to another directory"
        raise StorageError(message("RLinf's files in the format `pt`", f"`{before.kind}`", target.path, remedy))
    index: dict[str, Any] = {}
    names = set()
    for count, one in enumerate(taken):
        told, shape = _written(target, one, sizes)
        names.add(told.name(_KIND))
        index[str(told.id)] = {
            "num_samples": told.length * told.width,
            "trajectory_id": told.id,
            "max_episode_length": told.episode,
            "shape": [told.length, told.width, *shape],
            "model_weights_id": told.weights,
        }
        if progress is not None:
            progress(count + 1)
    target.sync()
    metadata = {
        "trajectory_format": _KIND,
        "size": len(index),
        "total_samples": sum(entry["num_samples"] for entry in index.values()),
        "trajectory_counter": counter,
        "seed": generator["seed"],
    }
    ids = [entry["trajectory_id"] for entry in index.values()]
    target.remove(GENERATOR)
    if generator["drawn"]:
        target.write(GENERATOR, [json.dumps({"metadata": metadata, "draws": draws}).encode()])
    target.write(METADATA, [json.dumps(metadata).encode()])
    target.write(INDEX, [json.dumps({"trajectory_index": index, "trajectory_id_list": ids}).encode()])
    target.sync()
    gone = {told.name(_KIND) for told in before.told} - names if before is not None else set()
    for name in sorted(gone | set(INDEXES[1:])):
        target.remove(name)


def _written(target: Folder, one: Taken, sizes: dict[str, int]) -> tuple[Told, tuple[int, ...]]:
    """Have one trajectory's file in `target`; returns what the index says of it, and the shape of a row of it."""
    told, source = told_of(one.held.records[one.position]), one.held.source(one.position)
    shape = _measured(one.held.layout(one.position))
    if isinstance(source, RLinfFiles) and source.kind == _KIND and told.weights:
        new = told._replace(id=one.id)
        source.learn(told)
        name = new.name(_KIND)
        if name not in sizes:
            # Never a link: RLinf writes its files in place, and would write into both.
            target.copy(source.folder, told.name(_KIND), name)
            return new, shape
    block = one.held.block(one.position)
    new = told._replace(id=one.id, weights=_weights(told.weights, block))
    name = new.name(_KIND)
    if name in sizes:
        _compare(RLinfFiles(target, one.held.arena, _KIND), new, block)
    else:
        target.write(name, [_file(block, new.weights)])
    return new, shape


def _compare(target: RLinfFiles, told: Told, block: Block) -> None:
    """Refuse a file of the same name that holds another trajectory."""
    there, here = target.read(told).fields(), block.fields()
    alike = there.keys() == here.keys() and all(
        there[path].dtype == array.dtype and there[path].tobytes() == array.tobytes() for path, array in here.items()
    )
    if not alike:
        remedy, at = "save to an empty directory", f"{target.folder.path}/{told.name(_KIND)}"
        raise StorageError(message("an earlier checkpoint of this buffer", "another buffer's", at, remedy))


def _measured(layout: Layout) -> tuple[int, ...]:
    """The shape of a row of the field that RLinf measures a trajectory by."""
    shapes = {column.path: column.shape for column in layout.columns}
    remedy = "save with `trajectory_format='safetensors'`"
    if ("rewards",) not in shapes:
        raise SchemaError(message("rewards, without which RLinf loads nothing", "none", "$.rewards", remedy))
    for name in _MAPPINGS:
        if (name,) in shapes:
            raise SchemaError(message("a mapping, as RLinf has it", "an array", f"$.{name}", remedy))
    return shapes.get(("prev_logprobs",), shapes[("rewards",)])


def _weights(given: str, block: Block) -> str:
    """The UUID that stands in a file's name: what was given, or else RLinf's rule."""
    try:
        uuid.UUID(given)
    except ValueError:
        versions = block.fields().get(("versions",), np.zeros(1, np.float32))
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, np.ascontiguousarray(versions).tobytes().hex()))
    return given


def _file(block: Block, weights: str) -> memoryview:
    """What `torch.save` makes of a trajectory."""
    try:
        import torch
    except ImportError as error:
        remedy = "pip install 'relive[train]'"
        at = "TrajectoryReplayBuffer(trajectory_format)"
        raise MissingExtra(message("the package `torch`, to write `pt` files", "none", at, remedy)) from error

    def tensor(array: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array))

    fields = block.fields()
    weights = block.model_weights_id or weights
    told: dict[str, Any] = {"max_episode_length": block.max_episode_length, "model_weights_id": weights}
    order = {name: number for number, name in enumerate((*_TENSORS, *_MAPPINGS))}
    names = dict.fromkeys([*(path[0] for path in fields), *_MAPPINGS])
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        told[name] = {} if name in _MAPPINGS else None
    for path, array in fields.items():
        node = told
        for key in path[:-1]:
            node[key] = node.get(key) or {}
            node = node[key]
        node[path[-1]] = tensor(array)
    file = io.BytesIO()
    torch.save(told, file)
    return file.getbuffer()
