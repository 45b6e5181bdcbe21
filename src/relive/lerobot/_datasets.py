"""The way from and to LeRobot's data sets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from .._adapters.names import WITH_ARTICLE, role_of
from .._base import check
from .._base.types import Array
from ..errors import SchemaError, message
from ..trajectories.lerobot import frames as count_frames
from ..trajectories.lerobot import from_lerobot
from ..trajectories.lerobot._names import feature_of
from ._batches import BatchTransition
from ._installed import lerobot
from ._layout import AddedStep, Value, is_image

Frame: TypeAlias = "Mapping[str, Tensor]"
Feature: TypeAlias = "dict[str, str | tuple[int, ...]]"
_REWARD, _SUCCESS, _EPISODE, _INFO = "next.reward", "next.success", "episode_index", "complementary_info."
_NEXT = "next."  # what the names of a frame's own next observations begin with
_FLAGS = _DONE, _TERMINATED, _TRUNCATED = "next.done", "next.terminated", "next.truncated"
_AT = "ReplayBuffer.from_lerobot_dataset"


@runtime_checkable
class Dataset(Protocol):
    """A `LeRobotDataset`, as it is read: frames in order."""

    def __len__(self) -> int:
        """Return the number of frames."""

    def __getitem__(self, index: int, /) -> Frame:
        """Return a frame."""


class _Directory:
    """A data set that is read without LeRobot, episode by episode."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __len__(self) -> int:
        return count_frames(self._path)

    def __iter__(self) -> Iterator[Frame]:
        for number, episode in enumerate(from_lerobot(self._path, videos=True)):
            columns = {feature_of(path): torch.from_numpy(_own(array[:, 0])) for path, array in episode.arrays.items()}
            for place in range(episode.length):
                frame = {name: _image(name, values[place]) for name, values in columns.items()}
                yield {**frame, _EPISODE: torch.tensor(number)}


def _own(array: Array) -> Array:
    """Return an array that can be written to, which Arrow's cannot and tensors have to."""
    return array if array.flags.writeable else array.copy()


def _image(name: str, value: Tensor) -> Tensor:
    """Convert images to floats in [0, 1] with their channels first; return other values unchanged."""
    if not is_image(name) or value.ndim != 3:
        return value
    return value.permute(2, 0, 1).float() / 255 if value.dtype == torch.uint8 else value.permute(2, 0, 1)


class DatasetFrames:
    """The frames of a data set, each read once and in order.

    Args:
        source: A data set, or its directory.
    """

    def __init__(self, source: Dataset | str | os.PathLike[str]) -> None:
        if isinstance(source, Dataset) and not isinstance(source, str):
            self._count, self._frames = len(source), self._items(source)
        else:
            directory = _Directory(Path(check.path(source, f"{_AT}(lerobot_dataset)")))
            self._count, self._frames = len(directory), iter(directory)

    @staticmethod
    def _items(dataset: Dataset) -> Iterator[Frame]:
        return (dataset[index] for index in range(len(dataset)))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Frame]:
        return self._frames


def steps_of(frames: Iterable[Frame], keys: Sequence[str]) -> Iterator[AddedStep]:
    """Make steps of frames: the state after a step is that of the following frame, unless frames have their own.

    Raises:
        SchemaError: A frame lacks a key, the action or the reward; or nothing takes a feature with the name of an end,
            a successor or a reward.
    """
    waiting: AddedStep | None = None
    known: set[str] = set()
    for frame, after in _pairs(frames):
        if frame.keys() != known:
            known = {*frame}
            _check(frame, keys)
        follows = after is not None and int(after[_EPISODE]) == int(frame[_EPISODE])
        done, over = _ends(frame, follows)
        own = {key: frame[_NEXT + key] for key in keys if _NEXT + key in frame}
        if own or done or (follows and not over):
            if waiting is not None:
                yield waiting
            # Those of the frame itself where nothing is bootstrapped, as LeRobot has it.
            waiting = _step(frame, own or (frame if done or after is None else after), keys, done)
            if own and not done and (over or not follows):
                waiting = waiting._replace(truncated=True)
        elif waiting is not None:  # what came after this frame is not in the data set, so that it is no step
            yield waiting if waiting.done else waiting._replace(truncated=True)
            waiting = None
    if waiting is not None:
        yield waiting


def _pairs(frames: Iterable[Frame]) -> Iterator[tuple[Frame, Frame | None]]:
    before: Frame | None = None
    for frame in frames:
        if before is not None:
            yield before, frame
        before = frame
    if before is not None:
        yield before, None


def _check(frame: Frame, keys: Sequence[str]) -> None:
    for key in (*keys, "action", _REWARD):
        if key not in frame:
            known = ", ".join(f"`{name}`" for name in frame)
            raise SchemaError(message(f"the feature `{key}`", known, _AT))
    after = [key for key in keys if _NEXT + key in frame]
    if after and len(after) < len(keys):
        raise SchemaError(message(f"`{_NEXT}...` of each of `state_keys`", f"`{_NEXT}{after[0]}`", _AT))
    taken = {_REWARD, _SUCCESS, *_FLAGS, *(_NEXT + key for key in keys)}
    for name in frame:
        role = None if name in taken or name.startswith(("observation.", _INFO)) else role_of(name)
        if role is not None:
            remedy = f"rename it, such as to `{_INFO}{name}`, which is stored beside, or hand over frames without it"
            raise SchemaError(
                message(f"a use of `{name}`, which has the name of {WITH_ARTICLE[role]}", "none", _AT, remedy)
            )


def _ends(frame: Frame, follows: bool) -> tuple[bool, bool]:
    """Tell by the flags of a frame if its step leads to a terminal state, and if its stream ends."""
    flags = {name: bool(frame[name]) for name in _FLAGS if name in frame}
    ended = flags.get(_DONE, not follows and _TERMINATED not in flags) and not flags.get(_TRUNCATED, False)
    return flags.get(_TERMINATED, ended), any(flags.values())


def _step(frame: Frame, later: Frame, keys: Sequence[str], done: bool) -> AddedStep:
    state, after = ({key: which[key][None] for key in keys} for which in (frame, later))
    info: dict[str, Value] = {k.removeprefix(_INFO): v[None] for k, v in frame.items() if k.startswith(_INFO)}
    reward = float(frame[_REWARD].item())
    return AddedStep(state, frame["action"][None], reward, after, done, False, info or None)


def written(
    parts: Iterator[BatchTransition], repo_id: str, fps: int, root: str | os.PathLike[str] | None, task: str
) -> Dataset:
    """Write batches of steps that follow each other as a data set, beside `root`, and rename it.

    Raises:
        FileExistsError: `root` exists.
        MissingExtra: LeRobot is not installed.
    """
    at = "ReplayBuffer.to_lerobot_dataset"
    opening = lerobot("datasets.lerobot_dataset", at).LeRobotDataset
    target = Path(lerobot("utils.constants", at).HF_LEROBOT_HOME) / repo_id if root is None else Path(root)
    if target.exists():
        raise FileExistsError(f"{target} exists")
    beside = target.with_name(target.name + ".unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    dataset, pending = None, False
    for part in parts:
        columns = _columns(part)
        if dataset is None:
            features = {name: _feature(values) for name, values in columns.items()}
            dataset = opening.create(repo_id=repo_id, fps=fps, features=features, root=beside, use_videos=True)
            # A method of the data set in LeRobot 0.4, and of its writer since.
            images = dataset if hasattr(dataset, "start_image_writer") else dataset.writer
            images.start_image_writer(num_processes=0, num_threads=3)
        ends = (part["done"] + part["truncated"]).bool().tolist()
        for place, end in enumerate(ends):
            frame = {name: _pixels(values[place]) for name, values in columns.items()}
            dataset.add_frame({**frame, "task": task})
            if end:
                dataset.save_episode()
            pending = not end
    if dataset is not None:
        if pending:
            dataset.save_episode()
        images.stop_image_writer()
        dataset.finalize()
    beside.rename(target)
    opened: Dataset = opening(repo_id, root=target)
    return opened


def _columns(part: BatchTransition) -> dict[str, Tensor]:
    """Return the features of frames; single numbers have an axis of one."""
    found = dict(part["state"])
    found["action"], found[_REWARD], found[_DONE] = part["action"], part["reward"], part["done"].bool()
    found |= {_INFO + key: values for key, values in (part["complementary_info"] or {}).items()}
    return {name: values[:, None] if values.ndim == 1 else values for name, values in found.items()}


def _feature(values: Tensor) -> Feature:
    shape = tuple(values.shape[1:])
    kind = "image" if len(shape) == 3 and shape[0] in (1, 3) else "bool" if values.dtype == torch.bool else "float32"
    return {"dtype": kind, "shape": shape}


def _pixels(value: Tensor) -> object:
    """Round an image to the nearest of 256 levels, where LeRobot would truncate; return other values unchanged."""
    if value.ndim == 3 and value.shape[0] in (1, 3) and float(value.min()) >= 0 and float(value.max()) <= 1:
        return (value * 255).round().to(torch.uint8).numpy()
    return value
