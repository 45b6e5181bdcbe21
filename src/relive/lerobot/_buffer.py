"""`ReplayBuffer` as LeRobot's learner uses it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np
import torch
from torch import Tensor

from .. import buffer as relive_buffer
from .._adapters.episodes import episodes
from .._base import check
from .._base.nests import mapped
from .._base.types import Int64
from .._flow.call_lock import AdapterLock, one_at_a_time
from .._flow.prefetch import Prefetched
from ..batch import Batch
from ..errors import ArgumentError, NotEnoughData, ReliveWarning, StaleId, event, message
from ._batches import BatchTransition, random_shift
from ._columns import Column, Columns
from ._keeping import Keeping
from ._layout import Inexact, Layout, State, Step, Value

if TYPE_CHECKING:
    from ._datasets import Dataset

Augment: TypeAlias = "Callable[[Tensor], Tensor]"
Images: TypeAlias = Literal["exact", "rounded", "float32"]
Unknown: TypeAlias = Literal["refuse", "drop"]

_SMALL, _SHARE, _PART = 1024, 1 / 16, 64


class ReplayBuffer:
    """A buffer with the name, the arguments and the batches of LeRobot's, `lerobot.rl.buffer.ReplayBuffer`.

    The first step says what is stored. Images, the values of keys that begin with `observation.image`, are stored as
    uint8 while each value is a multiple of 1/255 to the bit, which is what a camera's image divided by 255 is; batches
    have the same float32 numbers again. An observation is stored once, whatever `optimize_memory` says, and
    `next_state` is right at every end.

    Args:
        capacity: Steps that are kept.
        device: Where batches go.
        state_keys: Accepted and not needed: the keys are those of the first state.
        image_augmentation_function: Called with all images of a batch, `[N, C, H, W]`, with `use_drq`; None:
            `random_shift`.
        use_drq: Whether images of batches are augmented.
        storage_device: Where steps are stored; only the CPU.
        optimize_memory: Accepted; the memory is the same.
        path: A directory in which the buffer is saved by itself. If a save is there, the buffer goes on from it.
        every: Seconds from one save to the next.
        seed: An integer, a `numpy.random.Generator`, or None.
        images: `"exact"`: uint8 where that is exact; an image that is not makes all of them float32, with a
            warning. `"rounded"`: uint8, the nearest multiple of 1/255, as in LeRobot's data sets. `"float32"`: as they
            are.
        unknown_info: What becomes of a key of `complementary_info` that the first step had not: `"refuse"` it by
            name, or `"drop"` it, with a warning, which LeRobot does in silence.

    Attributes:
        relive: The `relive.ReplayBuffer` with the steps; None before the first one.

    Raises:
        ArgumentError: A choice outside of these.

    >>> import torch
    >>> buffer = ReplayBuffer(1000, "cpu", ["observation.state"], use_drq=False, seed=0)
    >>> for t in range(3):
    ...     now, then = ({"observation.state": torch.full((1, 2), t + k)} for k in (0.0, 1.0))
    ...     buffer.add(now, torch.zeros(1, 6), reward=1.0, next_state=then, done=t == 2, truncated=False)
    >>> batch = buffer.sample(2)
    >>> batch["state"]["observation.state"].shape, len(buffer)
    (torch.Size([2, 2]), 3)
    """

    def __init__(
        self,
        capacity: int,
        device: str | torch.device = "cuda:0",
        state_keys: Sequence[str] | None = None,
        image_augmentation_function: Augment | None = None,
        use_drq: bool = True,
        storage_device: str | torch.device = "cpu",
        optimize_memory: bool = False,
        *,
        path: str | os.PathLike[str] | None = None,
        every: float = 1.0,
        seed: int | np.random.Generator | None = None,
        images: Images = "exact",
        unknown_info: Unknown = "refuse",
    ) -> None:
        at = "ReplayBuffer"
        if check.integer(capacity, f"{at}(capacity)", minimum=-(2**62)) <= 0:
            raise ArgumentError(event("Capacity must be greater than 0", f"{at}(capacity)"))
        if torch.device(storage_device).type != "cpu":
            remedy = "leave it out; `device` says where batches go"
            raise ArgumentError(message('`"cpu"`', f"`{storage_device}`", f"{at}(storage_device)", remedy))
        self.capacity, self.device, self.storage_device = capacity, device, storage_device
        self.state_keys = [] if state_keys is None else state_keys
        self.image_augmentation_function = image_augmentation_function or random_shift
        self.use_drq, self.optimize_memory = use_drq, optimize_memory
        self._images = check.one_of(images, get_args(Images), f"{at}(images)")
        self._drops = check.one_of(unknown_info, get_args(Unknown), f"{at}(unknown_info)") == "drop"
        self._dropped: set[str] = set()
        self._seed = seed
        # A capacity of a few steps has room for a final observation after each of them.
        self._boundaries = 1.0 if capacity <= _SMALL else _SHARE
        self._outer = AdapterLock()
        self._layout: Layout | None = None
        self.relive: relive_buffer.ReplayBuffer | None = None
        self._keeping: Keeping | None = None
        if path is not None:
            self._keep(path, every)

    def _keep(self, path: str | os.PathLike[str], every: float) -> None:
        """Be saved there from now on, and go on from what is there, if nothing is stored yet."""
        self._keeping = keeping = Keeping(path, every)
        if self.relive is None:
            self.relive = keeping.load(self.capacity, self._boundaries, self._seed)
            if self.relive is not None:
                self._layout = Layout(self.relive.schema, rounded=self._images == "rounded")
        if self.relive is not None:
            keeping.begin(self.relive)

    @property
    def initialized(self) -> bool:
        """Whether a step has been added."""
        return self.relive is not None

    def __len__(self) -> int:
        return 0 if self.relive is None else len(self.relive)

    def __repr__(self) -> str:
        return f"relive.lerobot.ReplayBuffer({len(self)} of {self.capacity} steps)"

    @one_at_a_time
    def add(
        self,
        state: State,
        action: Tensor,
        reward: float,
        next_state: State | None,
        done: bool,
        truncated: bool,
        complementary_info: Mapping[str, Value] | None = None,
    ) -> None:
        """Add one step; tensors may have a leading axis of 1.

        Args:
            state: The observation, by key.
            action: The action.
            reward: The reward.
            next_state: The observation after the step; the final one where the episode ended. None: the `state` of the
                next call.
            done: Whether the episode ended in a terminal state.
            truncated: Whether it was ended from outside.
            complementary_info: Further numbers, by key; the same keys in every step.

        Raises:
            SchemaError: A key is missing, or new, or a shape is not that of the first step. Nothing has changed.
        """
        step = Step(state, action, reward, next_state, done, truncated, complementary_info)
        layout = self._layout or Layout.of(state, action, complementary_info, self._images)
        try:
            self._put(layout, step)
        except Inexact:
            self._put(self._widened(layout), step)

    def _put(self, layout: Layout, step: Step) -> None:
        if self._drops:
            self._say(layout.unknown(step.complementary_info))
        arguments = layout.arguments(step, self._drops)
        buffer = self._made(layout) if self.relive is None else self.relive
        buffer.add(**arguments)
        if self.relive is None:
            self.relive, self._layout = buffer, layout
            if self._keeping is not None:
                self._keeping.begin(buffer)

    def _made(self, layout: Layout) -> relive_buffer.ReplayBuffer:
        schema, share = layout.schema, self._boundaries
        return relive_buffer.ReplayBuffer(schema, self.capacity, seed=self._seed, boundaries=share)

    def _say(self, unknown: set[str]) -> None:
        new = unknown - self._dropped
        if new:
            self._dropped |= new
            names = ", ".join(f"`{key}`" for key in sorted(new))
            warnings.warn(event(f"Left out {names}", "$.complementary_info"), ReliveWarning, stacklevel=5)

    def _widened(self, layout: Layout) -> Layout:
        """Store images as float32 from now on: those that are stored, too."""
        wide, old = layout.widened(), self.relive
        if old is None:
            return wide
        what = "An image is no multiple of 1/255, so that all are stored as float32, in four times the memory"
        remedy = '`images="rounded"` stores the nearest multiple, as LeRobot\'s data sets do'
        warnings.warn(event(what, "ReplayBuffer.add", remedy), ReliveWarning, stacklevel=4)
        buffer = self._made(wide)
        buffer.rng = old.rng
        for episode in episodes(old):
            steps = wide.decoded(episode.fields)
            if episode.complete:
                buffer.extend(**steps)
                continue
            newest = mapped(lambda values: values[-1:], steps)
            if len(steps["reward"]) > 1:
                buffer.extend(**mapped(lambda values: values[:-1], steps))
            buffer.extend(**newest | {"next_obs": None})
        self.relive, self._layout = buffer, wide
        if self._keeping is not None:
            self._keeping.replace(buffer)
        old.close()
        return wide

    def sample(self, batch_size: int) -> BatchTransition:
        """Draw items, each with the same probability.

        Args:
            batch_size: How many; of a buffer with fewer steps as many as there are.

        Returns:
            The batch, on `device`.

        Raises:
            NotEnoughData: The buffer is empty.
        """
        drawn, layout = self._drawn(batch_size)
        batch = layout.batch(drawn, torch.device(self.device))
        return self._augmented(batch, layout.images) if self.use_drq and layout.images else batch

    @one_at_a_time
    def _drawn(self, batch_size: int) -> tuple[Batch, Layout]:
        buffer, layout = self.relive, self._layout
        if buffer is None or layout is None or not len(buffer):
            raise NotEnoughData(event("Cannot sample from an empty buffer", "ReplayBuffer.sample", "add transitions"))
        return buffer.sample(min(batch_size, len(buffer))), layout

    def _augmented(self, batch: BatchTransition, keys: list[str]) -> BatchTransition:
        """The batch with its images changed by one call for all of them."""
        both = batch["state"], batch["next_state"]
        images = torch.cat([part[key] for key in keys for part in both])
        changed = self.image_augmentation_function(images).tensor_split(2 * len(keys))
        for number, key in enumerate(keys):
            for part, values in zip(both, changed[2 * number :], strict=False):
                part[key] = values
        return batch

    def get_iterator(
        self, batch_size: int, async_prefetch: bool = True, queue_size: int = 2
    ) -> Iterator[BatchTransition]:
        """Batches without an end, as `sample` draws them.

        Args:
            batch_size: Items of each batch.
            async_prefetch: Whether a thread draws them ahead. An error in a draw is raised in place of its batch.
            queue_size: How many batches wait at most.
        """
        if not async_prefetch:
            return iter(lambda: self.sample(batch_size), None)
        drawn = Prefetched(
            lambda _: cast(Batch, self.sample(batch_size)),  # it hands on whatever is drawn
            check.integer(queue_size, "ReplayBuffer.get_iterator(queue_size)", minimum=1),
            at="ReplayBuffer.get_iterator",
        )
        return cast(Iterator[BatchTransition], drawn)

    @classmethod
    def from_lerobot_dataset(
        cls,
        lerobot_dataset: Dataset | str | os.PathLike[str],
        device: str | torch.device = "cuda:0",
        state_keys: Sequence[str] | None = None,
        capacity: int | None = None,
        image_augmentation_function: Augment | None = None,
        use_drq: bool = True,
        storage_device: str | torch.device = "cpu",
        optimize_memory: bool = False,
        *,
        path: str | os.PathLike[str] | None = None,
        every: float = 1.0,
        seed: int | np.random.Generator | None = None,
        images: Images = "exact",
        unknown_info: Unknown = "refuse",
    ) -> ReplayBuffer:
        """A buffer with the steps of a data set.

        An episode whose last frame is not `next.done` lacks the observation after that frame: its last step is left
        out, and the one before it is truncated. Where frames have no `next.done`, every episode ends in `done`.
        `next.terminated` and `next.truncated` say what kind of end it is, and `next.observation...` what came after
        a frame; then every frame is a step. Other features with the name of an end, a successor or a reward are
        refused.

        Args:
            lerobot_dataset: A `LeRobotDataset`, whose frames LeRobot decodes; or its directory, which is read without
                LeRobot, videos through PyAV.
            device: As in the constructor, as are those that follow.
            state_keys: The features that make a state.
            capacity: Steps that are kept, not fewer than the data set has frames; None: as many.
            image_augmentation_function: As in the constructor.
            use_drq: As in the constructor.
            storage_device: As in the constructor.
            optimize_memory: As in the constructor.
            path: Where the buffer is saved by itself, once it has all steps.
            every: As in the constructor.
            seed: As in the constructor.
            images: As in the constructor.
            unknown_info: As in the constructor.

        Raises:
            ArgumentError: There are no `state_keys`, or the capacity is too small.
            SchemaError: The data set lacks one of them, or rewards; or nothing takes a feature with the name of an end,
                a successor or a reward.
            StorageError: The directory has no data set of format v3, or a damaged one.
        """
        from ._datasets import Frames, steps_of

        at = "ReplayBuffer.from_lerobot_dataset"
        if state_keys is None:
            raise ArgumentError(message("the features that make a state", "none", f"{at}(state_keys)"))
        frames = Frames(lerobot_dataset)
        if capacity is None:
            capacity = len(frames)
        if capacity < len(frames):
            raise ArgumentError(message(f"at least {len(frames)}, the frames", f"{capacity}", f"{at}(capacity)"))
        made = cls(
            capacity,
            device,
            state_keys,
            image_augmentation_function,
            use_drq,
            storage_device,
            optimize_memory,
            seed=seed,
            images=images,
            unknown_info=unknown_info,
        )
        for step in steps_of(frames, list(state_keys)):
            made.add(*step)
        if path is not None:
            made._keep(path, every)
        return made

    @one_at_a_time
    def to_lerobot_dataset(
        self,
        repo_id: str,
        fps: int = 1,
        root: str | os.PathLike[str] | None = None,
        task_name: str = "from_replay_buffer",
    ) -> Dataset:
        """Write all steps as a data set of LeRobot's, which has to be installed.

        The files are written beside `root` first, in `ROOT.unfinished`: whenever a kill comes, `root` is whole or not
        there. As in LeRobot, an episode ends where `done` or `truncated` is set.

        Args:
            repo_id: The data set's name.
            fps: Frames per second.
            root: The directory, which must not exist; None: LeRobot's own place for `repo_id`.
            task_name: The task of every frame.

        Returns:
            The `LeRobotDataset`.

        Raises:
            ArgumentError: The buffer is empty.
            FileExistsError: `root` exists.
            MissingExtra: LeRobot is not installed.
        """
        from ._datasets import written

        if not len(self):
            what = "The replay buffer is empty. Cannot convert to a dataset"
            raise ArgumentError(event(what, "ReplayBuffer.to_lerobot_dataset", "add transitions"))
        return written(self._parts(), repo_id, fps, root, task_name)

    def _parts(self) -> Iterator[BatchTransition]:
        """All steps whose successor is known, oldest first, some at a time."""
        buffer, layout = self.relive, self._layout
        if buffer is None or layout is None:
            return
        for batch in buffer.batches(_PART, shuffle=False):
            yield layout.batch(batch, torch.device("cpu"))

    @one_at_a_time
    def _read(self, places: Int64) -> BatchTransition:
        """Steps by their place, as they are stored."""
        buffer, layout = self.relive, self._layout
        if buffer is None or layout is None:
            raise NotEnoughData(message("a step", "none", "ReplayBuffer"))
        ids = np.sort(buffer.column("ids")[0])
        ids = ids[ids >= 0]
        # A ring that is not full, as after a load with a larger capacity, begins with its oldest step.
        begin = buffer.stats().added - len(ids) if len(ids) == self.capacity else 0
        number = (places - begin) % self.capacity
        if (number >= len(ids)).any():
            raise StaleId(message("places of stored steps", f"{places.tolist()[:8]}", "ReplayBuffer"))
        return layout.batch(buffer.read(ids[number]), torch.device("cpu"))

    def _column(self, pick: Callable[[BatchTransition], Tensor]) -> Column:
        return Column(self.__len__, self._read, pick)

    def _columns(self, part: Literal["state", "next_state"]) -> Columns:
        keys = [] if self._layout is None else self._layout.keys

        def column(key: str) -> Column:
            return self._column(lambda batch: batch[part][key])

        return Columns({key: column(key) for key in keys})

    @one_at_a_time
    def close(self) -> None:
        """Write a last save if there is a `path`, and free the memory. A second call does nothing."""
        if self.relive is not None:
            self.relive.close()

    @property
    def states(self) -> Columns:
        """Stored states by key, then by place, as read-only copies."""
        return self._columns("state")

    @property
    def next_states(self) -> Columns:
        """Stored next states, likewise."""
        return self._columns("next_state")

    @property
    def actions(self) -> Column:
        """Stored actions by place, as read-only copies."""
        return self._column(lambda batch: batch["action"])

    @property
    def rewards(self) -> Column:
        """Stored rewards, likewise."""
        return self._column(lambda batch: batch["reward"])

    @property
    def dones(self) -> Column:
        """Whether stored steps ended their episodes in a terminal state, likewise."""
        return self._column(lambda batch: batch["done"].bool())

    @property
    def truncateds(self) -> Column:
        """Whether stored steps' episodes were ended from outside, likewise."""
        return self._column(lambda batch: batch["truncated"].bool())
