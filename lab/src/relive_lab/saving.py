"""Runs on disk: the learner is one safetensors file, tensors and a JSON header; no code is ever loaded from it."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from relive.errors import ArgumentError, message
from relive_lab import checks
from relive_lab.agent import Part
from relive_lab.config import TrainerConfig
from relive_lab.replay import check_changes

C = TypeVar("C", bound=TrainerConfig)

FORMAT = "relive-learner-2"
LEARNER, BUFFER = "learner.safetensors", "buffer"
# A kill between the two writes of a save leaves, of the buffer's last two saves, the one that the learner's file names.
# After a save that was not completed all are kept: there may be any number that no learner names.
KEEP, KEEP_ALL = 2, 1_000_000
# Saves a buffer in a folder, keeps so many saves, and may leave the writing to a thread; returns what waits for it, and
# says what the save is called there.
Save = Callable[[Path, int, bool], Callable[[], int]]


class Home:
    """The folder where a run is saved, and the save that a thread still writes.

    Args:
        path: The folder, absolute; an empty one where there is none yet.
    """

    def __init__(self, path: Path = Path()) -> None:
        self.path, self._keep = path, KEEP_ALL
        self._pending: Future[None] | None = None

    def save(self, save: Save, tensors: dict[str, Tensor], text: str, *, wait: bool) -> None:
        """Save the buffer, then `tensors` and `text` as the learner's file; see `Run.save`."""
        keep, self._keep = self._keep, KEEP_ALL
        if wait:
            self._complete(save(self.path / BUFFER, keep, True), tensors, text)
            return
        instant = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        saved = save(self.path / BUFFER, keep, False)
        thread = ThreadPoolExecutor(1, "relive-save")
        self._pending = thread.submit(self._complete, saved, instant, text)
        thread.shutdown(wait=False)  # it ends with the save, for which the interpreter's end waits

    def wait(self) -> None:
        """Wait for the save that a thread writes; raises what went wrong there."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _complete(self, saved: Callable[[], int], tensors: dict[str, Tensor], text: str) -> None:
        write(self.path / LEARNER, tensors, text, saved())
        self._keep = KEEP


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


@dataclasses.dataclass(frozen=True)
class Saved(Generic[C]):
    """A run as it was saved, and the settings with which it goes on.

    Attributes:
        config: The settings.
        tensors: What `pack` returned, and other tensors.
        facts: The rest.
        path: Its folder, absolute.
        at: What messages call the loading.
    """

    config: C
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    path: Path
    at: str

    def refusal(self, why: object) -> ArgumentError:
        """Return the error of a learner that does not fit."""
        wanted = "a learner that fits this environment and configuration"
        return ArgumentError(message(wanted, f"`{self.path}` ({why})", self.at))


def saved_run(path: str | os.PathLike[str], trainer: str, kind: type[C], changes: Mapping[str, Any]) -> Saved[C]:
    """Read what a trainer saved in a folder.

    Args:
        path: The folder.
        trainer: Name of the trainer's class.
        kind: Of its settings.
        changes: Settings that differ from now on.

    Raises:
        FileNotFoundError: No run is saved there.
        ArgumentError: The file is damaged or another trainer's, or the run cannot go on with these changes.
    """
    at = f"{trainer}.load"
    home = Path(checks.path(path, f"{at}(path)")).absolute()
    tensors, facts = read(home / LEARNER, at)
    if facts["trainer"] != trainer:
        got, remedy = f"`{path}` of `{facts['trainer']}`", f"`{facts['trainer']}.load` reads it"
        raise ArgumentError(message(f"a learner of `{trainer}`", got, at, remedy))
    if unknown := set(changes) - {field.name for field in dataclasses.fields(kind)}:
        raise ArgumentError(message(f"fields of `{kind.__name__}`", f"`{min(unknown)}`", f"{at}(changes)"))
    check_changes(facts["config"], changes, at)
    return Saved(kind(**{**facts["config"], **changes}), tensors, facts, home, at)


def pack(parts: Mapping[str, Part]) -> dict[str, Tensor]:
    """Return all tensors of named modules, optimizers and generators as one flat dict."""
    tensors: dict[str, Tensor] = {}
    for name, part in parts.items():
        if isinstance(part, Tensor):
            tensors[name] = part
        elif isinstance(part, torch.Generator):
            tensors[name] = part.get_state()
        else:
            state = part.state_dict()
            if isinstance(part, torch.optim.Optimizer):
                state = {f"{i}.{key}": value for i, entry in state["state"].items() for key, value in entry.items()}
            tensors.update({f"{name}.{key}": value for key, value in state.items()})
    return tensors


def unpack(tensors: Mapping[str, Tensor], parts: Mapping[str, Part], optional: Container[str] = ()) -> None:
    """Load what `pack` returned; RuntimeError, KeyError or ValueError if it does not fit.

    An optimizer keeps its own step sizes. Where nothing is there of an `optional` part, that stays as it is.
    """
    for name, part in parts.items():
        own = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
        if name in optional and not own and name not in tensors:
            continue
        if isinstance(part, Tensor):
            part.copy_(tensors[name])
        elif isinstance(part, torch.Generator):
            part.set_state(tensors[name])
        elif isinstance(part, torch.optim.Optimizer):
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
