"""Write RLinf's directories: its file names, its dictionaries of tensors, its two JSON files."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import numpy as np

from ..._base.extras import needs
from ..._base.memory import Arena
from ..._base.narrow import to_torch
from ..._base.nests import nested
from ..._disk.files import Folder
from ...errors import SchemaError, StorageError, message
from .._block import TrajectoryBlock
from .._entry import Entry
from .._layout import FieldLayout
from .._store import StoredTrajectory
from ..formats import Numbered, Written
from ..trajectory import MAPPINGS, TENSORS
from ._listing import GENERATOR, INDEX, INDEXES, METADATA, listing, name_of
from ._source import RLinfSource

_KIND = "pt"
_RLINF_SEED = 1234  # RLinf's default


def write(target: Folder, trajectories: Numbered, counter: int, draws: str | None, written: Written) -> None:
    """Write trajectories, each with its new id, as one of RLinf's directories.

    Files of an earlier save with the same contents are kept. The new index is renamed last, and only then are files
    that it does not list deleted: an interrupted save leaves the earlier checkpoint.

    RLinf's metadata have the generator's seed, but not its state. Once anything has been drawn, the state goes to a
    file of its own, with a copy of the metadata: if RLinf saves into the directory, they no longer agree.

    Args:
        target: The directory.
        trajectories: New ids and trajectories, in order.
        counter: The next id.
        draws: The generator's state.
        written: Called with the number of trajectories written so far.

    Raises:
        SchemaError: RLinf cannot load such fields.
        StorageError: The directory has other contents, or cannot be written to.
    """
    generator = {"seed": _RLINF_SEED, "drawn": False} if draws is None else json.loads(draws)
    sizes, remedy = target.sizes(), "save to another directory"
    before = listing(target) if not sizes.keys().isdisjoint(INDEXES) else None
    if before is not None and before.kind != _KIND:
        raise StorageError(message("RLinf's files in the format `pt`", f"`{before.kind}`", target.path, remedy))
    index: dict[str, Any] = {}
    names = set()
    for count, (id_, stored) in enumerate(trajectories, 1):
        shape = _measured(stored.entry.layout)
        entry = _written(target, id_, stored, sizes)
        names.add(name_of(entry, _KIND))
        index[str(id_)] = {
            "num_samples": entry.length * entry.width,
            "trajectory_id": id_,
            "max_episode_length": entry.max_episode_length,
            "shape": [entry.length, entry.width, *shape],
            "model_weights_id": entry.model_weights_id,
        }
        written(count)
    target.sync()
    metadata = {
        "trajectory_format": _KIND,
        "size": len(index),
        "total_samples": sum(row["num_samples"] for row in index.values()),
        "trajectory_counter": counter,
        "seed": generator["seed"],
    }
    ids = [row["trajectory_id"] for row in index.values()]
    target.remove(GENERATOR)
    if generator["drawn"]:
        target.write(GENERATOR, [json.dumps({"metadata": metadata, "draws": draws}).encode()])
    target.write(METADATA, [json.dumps(metadata).encode()])
    target.write(INDEX, [json.dumps({"trajectory_index": index, "trajectory_id_list": ids}).encode()])
    target.sync()
    old = {name_of(entry, _KIND) for entry in before.entries} - names if before is not None else set()
    for name in sorted(old | set(INDEXES[1:])):
        target.remove(name)


def _written(target: Folder, id_: int, stored: StoredTrajectory, sizes: dict[str, int]) -> Entry:
    """Put one trajectory's file into `target`; returns its entry in RLinf's index."""
    entry, source = stored.entry, stored.source
    if isinstance(source, RLinfSource) and source.kind == _KIND and entry.model_weights_id:
        new = entry._replace(id=id_)
        source.fields_of(entry)
        name = name_of(new, _KIND)
        if name not in sizes:
            # Never a hard link: RLinf writes files in place, and would change both.
            target.copy(source.folder, name_of(entry, _KIND), name)
            return new
    block = stored.block()
    new = entry._replace(id=id_, model_weights_id=_weights(entry.model_weights_id, block))
    name = name_of(new, _KIND)
    if name in sizes:
        _compare(RLinfSource(target, Arena(), _KIND), new, block)
    else:
        target.write(name, [_file(block, new.model_weights_id)])
    return new


def _compare(target: RLinfSource, entry: Entry, block: TrajectoryBlock) -> None:
    """Refuse an existing file that holds another trajectory."""
    old, new = target.block(entry).fields(), block.fields()
    alike = old.keys() == new.keys() and all(
        old[path].dtype == array.dtype and old[path].tobytes() == array.tobytes() for path, array in new.items()
    )
    if not alike:
        wanted, remedy = "an earlier checkpoint of this buffer", "save to an empty directory"
        raise StorageError(message(wanted, "another buffer's", target.at(entry), remedy))


def _measured(layout: FieldLayout) -> tuple[int, ...]:
    """Return the row shape of the field that RLinf takes a trajectory's shape from.

    Raises:
        SchemaError: RLinf could not load the fields.
    """
    shapes = {column.path: column.shape for column in layout.columns}
    remedy = "save with `trajectory_format='safetensors'`"
    if ("rewards",) not in shapes:
        raise SchemaError(message("rewards, which RLinf requires", "none", "$.rewards", remedy))
    for name in MAPPINGS:
        if (name,) in shapes:
            raise SchemaError(message("a mapping, which RLinf requires", "an array", f"$.{name}", remedy))
    return shapes.get(("prev_logprobs",), shapes[("rewards",)])


def _weights(given: str, block: TrajectoryBlock) -> str:
    """Return the UUID in a file's name: the given one, or else one made by RLinf's rule."""
    try:
        uuid.UUID(given)
    except ValueError:
        versions = block.fields().get(("versions",), np.zeros(1, np.float32))
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, np.ascontiguousarray(versions).tobytes().hex()))
    return given


def _file(block: TrajectoryBlock, weights: str) -> memoryview:
    """Return a trajectory as `torch.save` writes it."""
    with needs("torch", "TrajectoryReplayBuffer(trajectory_format)"):
        import torch

    def tensor(array: Any) -> Any:
        return to_torch(np.ascontiguousarray(array)) if isinstance(array, np.ndarray) else array

    fields = nested((path, tensor(value)) for path, value in {**block.metadata, **block.fields()}.items())
    weights = block.entry.model_weights_id or weights
    data: dict[str, Any] = {"max_episode_length": block.entry.max_episode_length, "model_weights_id": weights}
    order = {name: number for number, name in enumerate((*TENSORS, *MAPPINGS))}
    for name in sorted(dict.fromkeys([*fields, *MAPPINGS]), key=lambda name: order.get(name, len(order))):
        data[name] = fields.get(name, {})
    file = io.BytesIO()
    torch.save(data, file)
    return file.getbuffer()
