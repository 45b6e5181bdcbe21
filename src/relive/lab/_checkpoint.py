"""A learner on disk: one safetensors file, tensors and a JSON header; no code is ever loaded from it."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relive._extras import needs
from relive.errors import ArgumentError, message

with needs("train", "relive.lab"):
    import safetensors.torch

FORMAT = "relive-learner-2"


def write(path: str | os.PathLike[str], tensors: dict[str, Tensor], text: str, buffer: int) -> None:
    """Write tensors and JSON facts to `path`, readable by the owner alone; OSError where the folder cannot be written.

    `buffer` is the number of the buffer's save that belongs to them.
    The file is complete or as it was before: it is written under another name, synced, and renamed.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data = safetensors.torch.save(contiguous, metadata={"format": FORMAT, "facts": text, "buffer": f"{buffer}"})
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def read(path: str | os.PathLike[str], at: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write` wrote; a file that is damaged or not a learner is an ArgumentError."""
    data = Path(path).read_bytes()
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        notes = header["__metadata__"]
        tensors = safetensors.torch.load(data)
        if notes["format"] != FORMAT:
            raise ValueError(notes["format"])
        facts: dict[str, Any] = {**json.loads(notes["facts"]), "buffer": int(notes["buffer"])}
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        got, remedy = f"`{path}` ({error})", "it is damaged or another kind of file"
        raise ArgumentError(message(f"a file of format `{FORMAT}`", got, at, remedy)) from error
    return tensors, facts


def pack(parts: dict[str, Any]) -> dict[str, Tensor]:
    """Return all tensors of named modules and optimizers as one flat dict."""
    tensors: dict[str, Tensor] = {}
    for name, part in parts.items():
        state = part.state_dict()
        if isinstance(part, torch.optim.Optimizer):
            state = {f"{i}.{key}": value for i, entry in state["state"].items() for key, value in entry.items()}
        tensors.update({f"{name}.{key}": value for key, value in state.items()})
    return tensors


def unpack(tensors: dict[str, Tensor], parts: dict[str, Any]) -> None:
    """Load what `pack` returned; RuntimeError, KeyError or ValueError if it does not fit.

    An optimizer keeps its own step sizes.
    """
    for name, part in parts.items():
        prefix = f"{name}."
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if isinstance(part, torch.optim.Optimizer):
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in own.items():
                index, _, entry = key.partition(".")
                state.setdefault(int(index), {})[entry] = value
            part.load_state_dict({"state": state, "param_groups": part.state_dict()["param_groups"]})
        else:
            part.load_state_dict(own)


def _sync_folder(folder: Path) -> None:
    # Without this a power cut may undo the rename. Windows cannot open folders, and needs no such call.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
