"""LeRobot's learner with this buffer in it, so that a kill at any moment loses a second of experience."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeAlias

import torch

from .._base.frozen import Frozen
from ..errors import ArgumentError, ReliveError, StorageError, event, message
from ._buffer import Images, ReplayBuffer
from ._checkpoints import last_checkpoint, run_of
from ._datasets import Dataset
from ._installed import lerobot

Device: TypeAlias = "str | torch.device"
NEEDED = ("ReplayBuffer", "initialize_replay_buffer", "initialize_offline_replay_buffer", "train", "train_cli")
OPENED = ("LeRobotDataset", "make_dataset")
_HOME = "relive"
_AT = "python -m relive.lerobot learner"
_log = logging.getLogger("relive")


class Policy(Protocol):
    """The part of LeRobot's configuration of a policy that its buffers need."""

    online_buffer_capacity: int
    offline_buffer_capacity: int
    input_features: Mapping[str, object]


class Data(Protocol):
    """The part of its configuration of a data set."""

    repo_id: str


class Config(Protocol):
    """The part of its configuration of a run."""

    output_dir: Path | None
    resume: bool
    policy: Policy
    dataset: Data | None
    validate: Callable[[], None]


class Options(Frozen):
    """What the command line says to relive, as `--relive.NAME=VALUE`.

    Attributes:
        every: Seconds from one save of a buffer to the next.
        images: As in `ReplayBuffer`.
    """

    every: float = 1.0
    images: Images = "exact"


def prepared(arguments: Sequence[str]) -> Callable[[], object]:
    """LeRobot's learner with these buffers, as a function that runs it.

    Args:
        arguments: Its own, and those of `Options`.

    Raises:
        ArgumentError: An option of relive's that is not there.
        MissingExtra: LeRobot is not installed.
        ReliveError: Its learner is not as in the versions that are known.
        StorageError: The run whose checkpoint was named has no complete one.
    """
    options, its = _parsed(arguments)
    for argument in its:
        run = run_of(argument.removeprefix("--config_path=")) if argument.startswith("--config_path=") else None
        if run is not None and last_checkpoint(run) is None:
            remedy = "start it again with the configuration that it was begun with: its experience is kept"
            raise StorageError(message("a complete checkpoint", "none", str(run), remedy))
    learner = lerobot("rl.learner", _AT)
    Safe(learner, options).install()
    sys.argv = ["lerobot.rl.learner", *its]
    train: Callable[[], object] = learner.train_cli
    return train


def _parsed(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    own = [a.removeprefix("--relive.").partition("=") for a in arguments if a.startswith("--relive.")]
    values = {name: value for name, _, value in own}
    unknown = sorted({*values} - {"every", "images"})
    if unknown:
        raise ArgumentError(message("`--relive.every=` or `--relive.images=`", f"`--relive.{unknown[0]}`", _AT))
    try:
        every = float(values.get("every", "1.0"))
    except ValueError:
        raise ArgumentError(message("a number of seconds", f"`{values['every']}`", "--relive.every")) from None
    named: dict[str, Images] = {"exact": "exact", "rounded": "rounded", "float32": "float32"}
    images = values.get("images", "exact")
    if images not in named:
        raise ArgumentError(message(f"one of {', '.join(named)}", f"`{images}`", "--relive.images"))
    return Options(every, named[images]), [a for a in arguments if not a.startswith("--relive.")]


class Safe:
    """What takes the place of functions of LeRobot's learner.

    The buffers are saved in `OUTPUT_DIR/relive/online` and `.../offline`, and read from there, whatever became of
    `dataset/`. A run that was killed before its first checkpoint begins anew, with the experience that it had.

    Args:
        learner: The module `lerobot.rl.learner`.
        options: What the command line said.

    Raises:
        ReliveError: The module lacks one of the names.
    """

    def __init__(self, learner: ModuleType, options: Options) -> None:
        missing = [name for name in (*NEEDED, *OPENED) if not hasattr(learner, name)]
        if missing:
            remedy = "0.4.4 and the main branch of July 2026 are known"
            raise ReliveError(message("the learner of a known version of LeRobot", f"no `{missing[0]}`", _AT, remedy))
        self._learner, self._options = learner, options
        self._train: Callable[[Config, str | None], None] = learner.train

    def install(self) -> None:
        """Replace the names in the module, which looks them up at each call."""
        for name, value in {
            "ReplayBuffer": ReplayBuffer,
            "initialize_replay_buffer": self.online,
            "initialize_offline_replay_buffer": self.offline,
            "train": self.train,
        }.items():
            setattr(self._learner, name, value)

    def online(self, cfg: Config, device: Device, storage_device: Device) -> ReplayBuffer:
        """The buffer of what the robot experiences, `initialize_replay_buffer`."""
        buffer = self._buffer(cfg, "online", cfg.policy.online_buffer_capacity, device, storage_device)
        if cfg.resume and not buffer.initialized:  # LeRobot's own learner began this run
            dataset = self._dataset(cfg, "dataset")
            if dataset is not None:
                capacity = cfg.policy.online_buffer_capacity
                return self._of(dataset, cfg, "online", capacity, device, storage_device)
        return buffer

    def offline(self, cfg: Config, device: Device, storage_device: Device) -> ReplayBuffer:
        """The buffer of demonstrations and interventions, `initialize_offline_replay_buffer`."""
        capacity = cfg.policy.offline_buffer_capacity
        buffer = self._buffer(cfg, "offline", capacity, device, storage_device)
        if buffer.initialized:
            return buffer
        dataset = self._dataset(cfg, "dataset_offline") if cfg.resume else None
        if dataset is None:
            dataset = self._learner.make_dataset(cfg)
        return self._of(dataset, cfg, "offline", capacity, device, storage_device)

    def _buffer(self, cfg: Config, name: str, capacity: int, device: Device, storage_device: Device) -> ReplayBuffer:
        return ReplayBuffer(
            capacity,
            device,
            list(cfg.policy.input_features),
            storage_device=storage_device,
            path=_home(cfg) / name,
            every=self._options.every,
            images=self._options.images,
            # Interventions bring keys that demonstrations lack; a run on a robot does not end for that.
            unknown_info="drop",
        )

    def _of(
        self, dataset: Dataset, cfg: Config, name: str, capacity: int, device: Device, storage_device: Device
    ) -> ReplayBuffer:
        return ReplayBuffer.from_lerobot_dataset(
            dataset,
            device,
            list(cfg.policy.input_features),
            capacity,
            storage_device=storage_device,
            path=_home(cfg) / name,
            every=self._options.every,
            images=self._options.images,
            unknown_info="drop",
        )

    def _dataset(self, cfg: Config, name: str) -> Dataset | None:
        """A data set that LeRobot's own learner left; None if there is none that LeRobot can open."""
        root = _home(cfg).parent / name
        if not root.is_dir():
            return None
        try:
            repo_id = None if cfg.dataset is None else cfg.dataset.repo_id
            opened: Dataset = self._learner.LeRobotDataset(repo_id=repo_id, root=str(root))
            return opened
        except Exception as error:  # it may be of any kind: the files are as a kill left them
            _log.warning("%s", event(f"LeRobot cannot open its data set ({error!r:.200})", str(root), "left out"))
            return None

    def train(self, cfg: Config, job_name: str | None = None) -> None:
        """`train`, for a run that is new, goes on, or was killed before its first checkpoint."""
        again = cfg.output_dir is not None and last_checkpoint(Path(cfg.output_dir)) is None and _home(cfg).is_dir()
        if again:
            what = "The run was killed before its first checkpoint; it begins anew, with its experience"
            _log.warning("%s", event(what, str(cfg.output_dir)))
            cfg.resume = False
        _mark(cfg, again)
        self._train(cfg, job_name)


def _home(cfg: Config) -> Path:
    if cfg.output_dir is None:
        raise ReliveError(message("a directory of the run", "none", "output_dir"))
    return Path(cfg.output_dir) / _HOME


def _mark(cfg: Config, again: bool) -> None:
    """Have the next `cfg.validate()` mark the run as one that can go on.

    Args:
        cfg: The configuration.
        again: Whether its directory is there, which LeRobot refuses for a run that is new.
    """
    validate = cfg.validate

    def validated() -> None:
        vars(cfg).pop("validate", None)  # the class's again: a configuration is sent to other processes
        output_dir = cfg.output_dir
        if again:
            cfg.output_dir = _home(cfg) / "none"
        try:
            validate()
        finally:
            if again:
                cfg.output_dir = output_dir
        _home(cfg).mkdir(parents=True, exist_ok=True)

    cfg.validate = validated
