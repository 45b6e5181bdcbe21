"""Device buffers made of saves of device buffers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._base import check
from .._base.types import Array, Int64
from .._buffer.saved_as import built
from .._buffer.schemas import schema_of
from .._disk.files import Folder
from .._disk.json_files import damaged
from .._disk.tensors import TensorReader
from ..checkpoints import _manifest
from ..checkpoints._loading import opened_save
from ..checkpoints._reading import tokens_after
from ..checkpoints._save_task import Basis, StepsFile
from ..checkpoints._saving import Saver
from ..checkpoints._steps import RANGES
from ..errors import ArgumentError, message
from ._ring import LanesRing
from ._saves import name_in, places, width
from .buffer import DeviceBuffer


def saved_on_device(
    path: str | os.PathLike[str], number: int | None, device: Any, seed: Any, others: Mapping[str, object]
) -> DeviceBuffer | None:
    """Build the buffer that a `DeviceBuffer` saved; None if another kind of buffer did.

    Raises:
        ArgumentError: One of the `others` was given: such a save has one way to be loaded.
    """
    number = None if number is None else check.integer(number, "load(number)", minimum=1)
    with closing(Folder(check.path(path, "load(path)"))) as folder:
        manifest = opened_save(folder, number, _manifest.read)
        if "device" not in manifest.choices:
            return None
        for name, value in others.items():
            if value is not None:
                remedy = '`relive.load(path, device="cpu").host()` is an ordinary buffer'
                wanted = f"no `{name}` for a save of a `DeviceBuffer`"
                raise ArgumentError(message(wanted, f"`{value!r}`", f"load({name})", remedy))
        return loaded(folder, manifest.number, device, seed, tokens_after(folder, manifest.number))


def loaded(folder: Folder, number: int, device: Any, seed: int | None, later: Iterator[str]) -> DeviceBuffer:
    """Build the buffer that a save holds, on any device; the draws of another kind of device are other ones.

    Raises:
        CorruptionError: The save is damaged.
    """
    manifest = _manifest.read(folder, number)
    facts, at = manifest.choices, f"{folder.path}/{_manifest.manifest_name(number)}"
    with damaged(at):
        schema = schema_of(facts["schema"])
        item, sampler = (built(name, facts[name]) for name in ("item", "sampler"))
        kind, masks = facts["device"]["kind"], facts["device"]["masks"]
        steps, lanes, boundaries = facts["steps"], facts["num_envs"], facts["boundaries"]
    made = DeviceBuffer(
        schema, steps * lanes, num_envs=lanes, item=item, sampler=sampler, device=device, boundaries=boundaries,
        masks=masks, seed=seed,
    )  # fmt: skip
    copies = made._saves()
    with damaged(at):
        if copies.ring.rows != facts["device"]["rows"]:
            raise ValueError("another number of rows")
    name = _manifest.state_name(number)
    with TensorReader(folder, name, manifest.state.nbytes, manifest.state.checksum) as state, damaged(state.at):
        if "generator" in state.tensors and seed is None:
            made._generate(state.rows("generator"), kind)
        for key, tensor in copies.small().items():
            _fill(tensor, state.rows(key))
    parts = []
    for file in manifest.steps:
        name = _manifest.steps_name(file.number)
        with TensorReader(folder, name, file.nbytes, file.checksum) as reader, damaged(reader.at):
            ranges = reader.rows(RANGES)
            _fill_rows(copies.ring, reader, ranges)
            parts.append(StepsFile(file, ranges))
    made._restored()
    head = made._ring.call.cpu().numpy()
    copies.saver = Saver(manifest.identity, Basis(manifest.token, head, tuple(parts)), later)
    return made


def _fill(tensor: Tensor, values: Array) -> None:
    raw = torch.from_numpy(values.reshape(-1).view(np.uint8))
    flat = torch.empty_like(tensor, device="cpu").reshape(-1)
    if flat.numel() * flat.element_size() != raw.numel():
        raise ValueError("another size")
    flat.view(torch.uint8).copy_(raw)
    tensor.copy_(flat.view(tensor.shape))


def _fill_rows(ring: LanesRing, reader: TensorReader, ranges: Int64) -> None:
    for field in ring.fields:
        if field.writable:
            continue
        raw, done, each = reader.rows(f"fields.{name_in(field)}"), 0, width(ring, field) // ring.lanes
        for _, begin, end in ranges.tolist():
            at = torch.from_numpy(places(ring, field, begin, end))
            values = torch.empty((len(at), *field.shape), dtype=field.dtype)
            part = raw[done : done + len(at) * each]
            if len(part) != len(at) * each:
                raise ValueError("another size")
            if len(part):
                values.view(-1).view(torch.uint8).copy_(torch.from_numpy(part))
            ring.data[field].index_copy_(0, at.to(ring.lane.device), values.to(ring.lane.device))
            done += len(part)
