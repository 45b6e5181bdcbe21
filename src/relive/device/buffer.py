"""`DeviceBuffer`: relive's ring, items and samplers as tensors of a device, whose calls never wait for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from .._base import check, forks
from .._base.extras import needs
from .._base.memory import available_bytes
from .._base.nests import nested
from .._buffer.arguments import no_priorities, readable, too_many
from .._buffer.call_lock import CallLock
from .._buffer.choices import Choices
from .._buffer.core import Tally
from .._ring import kernels as kernels_of
from .._ring.lanes import BOUNDARIES, DRAWABLE, STORED
from ..batch import Batch
from ..checkpoints._saving import Saver, saver_of
from ..checkpoints.autosave import Autosave, begun
from ..errors import ArgumentError, NotEnoughData, ReliveError, message
from ..samplers import Prioritized
from . import _host
from ._arguments import Arguments, refuse
from ._late import Late
from ._layout import Layout
from ._ops import Ops
from ._ops_gather import powers_of
from ._random import key_of
from ._state import State
from ._tree import COUNT
from ._twin import Ahead, Twin

if TYPE_CHECKING:
    from typing import Self

    from .._buffer.stats import Stats
    from ..buffer import ReplayBuffer
    from ..checkpoints._saved import Saved
    from ..items import Item
    from ..samplers import Sampler
    from ..schema import Schema
    from ._kernels import Kernels
    from ._ops_gather import Readable
    from ._triton import Triton

KERNELS = ("ops", "triton")


class DeviceBuffer:
    """A replay buffer whose steps live on a device, for simulators that step there; no call waits for the device.

    It keeps relive's own arrays as tensors, and draws the same items as a `ReplayBuffer` whose generator is
    `numpy.random.Generator(numpy.random.Philox(seed))`: same ids, weights and fields, bit by bit.

    Args:
        schema: The fields of a step; dtypes that PyTorch has.
        capacity: Steps that are kept, over all lanes (>= `num_envs`).
        num_envs: Lanes, one for each environment; every call is about all of them, with masks.
        item: `Transitions(...)`, with chunks or without, or `Sequences(...)` that end with their episode.
        sampler: `Uniform()` or `Prioritized(...)`, with replacement.
        device: Where the tensors live: `"cuda"`, `"cuda:1"`, `"cpu"`, any that has float64; `"mps"` has not.
        seed: An integer, or a `numpy.random.Generator` of a `Philox` whose place in its stream is taken over; None for
            fresh entropy.
        boundaries: As in `ReplayBuffer`.
        kernels: `"ops"`, PyTorch's operations; `"triton"`, one kernel for each call; None: Triton on a GPU that has
            it, else PyTorch's operations. Both do the same, to the bit.

    Raises:
        ArgumentError: A choice of another kind, or one that a device buffer lacks; the message says what works.

    `add`, `sample`, `update_priorities`, `write`, `cut`, `clear` and `priorities` never wait; `check`, `len`, `stats`,
    `can_sample`, `host`, `save` and `repr` do. Mistakes in values that only the device sees (TD errors that are not
    finite, ids that no step had, a draw when there are no items) change nothing; `check()` raises them at once, and the
    next `sample` or `priorities` once they are known. Calls that change the buffer raise none: each is made.
    All tensors stay where they are for ever, so calls can be captured in a CUDA graph and replayed.

    >>> import torch, relive
    >>> schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field((2,)))
    >>> buffer = relive.DeviceBuffer(schema, 4000, num_envs=4, device="cpu", seed=0)
    >>> obs, no = torch.zeros(4, 3), torch.zeros(4, dtype=torch.bool)
    >>> step = dict(obs=obs, action=torch.zeros(4, 2), reward=torch.ones(4), next_obs=obs, terminated=no, truncated=no)
    >>> buffer.add(**step).tolist()
    [0, 1, 2, 3]
    >>> batch = buffer.sample(8)
    >>> batch.next_obs.shape, batch.reward.sum().item()
    (torch.Size([8, 3]), 8.0)
    """

    def __init__(
        self,
        schema: Schema,
        capacity: int,
        *,
        num_envs: int = 1,
        item: Item | None = None,
        sampler: Sampler | None = None,
        device: torch.device | str = "cuda",
        seed: int | np.random.Generator | None = None,
        boundaries: float = BOUNDARIES,
        kernels: str | None = None,
    ) -> None:
        choices = Choices.checked(schema, capacity, num_envs, item, sampler, None, boundaries, "DeviceBuffer")
        self._build(choices, _device(device), _philox(seed), kernels)

    @classmethod
    def of(
        cls,
        buffer: ReplayBuffer,
        *,
        device: torch.device | str = "cuda",
        seed: int | np.random.Generator | None = None,
        kernels: str | None = None,
    ) -> Self:
        """Return a device buffer with the steps and priorities of an ordinary one, and its ids.

        Args:
            buffer: What is copied; it stays as it is.
            device: As for a new one, like the arguments that follow.
            seed: None: the buffer's generator goes on, if that is one of `numpy.random.Philox`; else fresh entropy.
            kernels: As for a new one.

        Raises:
            ArgumentError: A choice that a device buffer lacks, or a buffer with a `RateLimiter`.
        """
        source = _host.of_host(buffer)
        if source.limiter is not None:
            wanted, remedy = "a buffer without a limiter", "one thread adds and learns here"
            raise ArgumentError(message(wanted, f"`{source.limiter!r}`", "DeviceBuffer.of(buffer)", remedy))
        of_host = source.rng.bit_generator if seed is None else None
        philox = of_host if isinstance(of_host, np.random.Philox) else _philox(seed)
        made = cls.__new__(cls)
        with source._core.lock.alone():
            made._build(source._core.choices, _device(device), philox, kernels, _host.longest_run(source._core) + 1)
            _host.fill(made._state, source._core)
            last = source._core.tally.last_ids, source._core.tally.last_weights
        made._last = torch.from_numpy(last[0].copy()).to(made.device), torch.from_numpy(last[1].copy()).to(made.device)
        made._added = len(source) > 0
        return made

    def _build(
        self, choices: Choices, device: torch.device, philox: np.random.Philox, kernels: str | None, runs: int = 1
    ) -> None:
        """Make the tensors of a buffer without steps; `runs` as `Ops` has it."""
        refuse(choices)
        if kernels is not None:
            check.one_of(kernels, KERNELS, "DeviceBuffer(kernels)")
        self._choices, self.device = choices, device
        self.schema, self.item, self.sampler = choices.schema, choices.item, choices.sampler
        self.num_envs, self.boundaries = choices.num_envs, choices.boundaries
        item: Readable = choices.item  # type: ignore[assignment]
        self._layout = Layout.of(choices)
        spec = choices.spec(choices.window, choices.sampler.keeps)
        key, position = key_of(philox)
        self._state = State.new(self._layout, spec, powers_of(item).astype(np.float32), key, position, device)
        self.kernels = kernels or ("triton" if device.type == "cuda" and find_spec("triton") else "ops")
        made = Ops if self.kernels == "ops" else _triton_kernels()
        runs += 2 * self._layout.history  # with a final observation, and where a stream begins
        self._kernels: Kernels = made(self._layout, self._state, item, self._settings, runs)
        self._arguments, self._late = Arguments(self._layout, device), Late(self._state.flags)
        self._lock = threading.Condition()
        self._copying = kernels_of.active().Lock()
        self._ahead = Ahead(self._layout, self._lock)
        self._twin: Twin | None = None  # what was saved last
        self._stream: Any = None
        self._done: Any = None
        self._added = False  # whether any step was added since the buffer was empty
        self._last: tuple[Tensor, Tensor] | None = None
        self._tally: Tally | None = None  # of what was saved last
        self._saved: Saved | None = None
        self._autosave: Autosave | None = None
        self._calls = 0
        self._most = _available(device) // choices.schema.nbytes
        self._replayer: int | None = None  # the thread that captured calls in a graph

    @property
    def _settings(self) -> Prioritized | None:
        return self.sampler if isinstance(self.sampler, Prioritized) else None

    @contextmanager
    def _turn(self, writes: bool = False, look: bool = True, changes: bool = False) -> Iterator[None]:
        """Let one call at a time run, ordered after the one before on any stream.

        A call that changes the buffer raises no earlier call's error, since a loop that logs the error would lose the
        change: a `cut` that was not made joins two episodes.

        Args:
            writes: Whether the call claims rows, which copies to the host may still have to read.
            look: Whether the errors of earlier calls are raised.
            changes: Whether the call changes the buffer; then none is raised.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise CallLock.refusal()
        with self._lock:
            self._calls += look
            captured = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
            ordered = self.device.type == "cuda" and not captured
            if captured:
                self._replayer = threading.get_ident()
            elif writes:
                self._ahead.write()
            if ordered:
                stream = torch.cuda.current_stream(self.device)
                if self._done is not None and self._stream != stream:
                    stream.wait_event(self._done)
            if look and not changes:
                self._late.look()
            yield
            if ordered:
                self._done = self._done or torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._done.record(stream)
                self._stream = stream

    def add(
        self,
        *,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        final_obs: Any = None,
        final_mask: Any = None,
        mask: Any = None,
        continues: bool = False,
        priority: Any = None,
        **fields: Any,
    ) -> Tensor:
        """Add one step of every lane, or of those of `mask`; does not wait.

        All are tensors on the buffer's device with the schema's dtypes and the leading axis `[L]`; stacked fields are
        given as whole stacks, whose older frames take rows of their own where a stream begins otherwise than padded.

        Args:
            next_obs: Observations after the step, nested as in the schema.
            terminated: Whether the episode ended in a terminal state, bool `[L]`.
            truncated: Whether it was ended from outside, such as by a time limit, bool `[L]`.
            final_obs: Observations after the last step of an episode, read in lanes that ended; None: `next_obs` has
                them. Simulators that reset by themselves give the next episode's first observation as `next_obs`.
            final_mask: Lanes whose final observation is known, among those that ended, bool `[L]`; None: all. Without
                one, the step's discount is 0, and a truncated one is counted as `stats().unbootstrapped`.
            mask: Lanes that take part, bool `[L]`; None: all.
            continues: Promise that `obs` is the `next_obs` of each lane's step before, where that has not ended. Then
                it is not compared; otherwise a stream is cut where it differs.
            priority: Raw priorities of the new steps, `[L]`, >= 0, as in `ReplayBuffer.add`; one that is not is
                counted as an error, and the step has the largest priority so far.
            **fields: `obs`, `action`, `reward`, and every further field of the schema.

        Returns:
            The steps' ids, int64 `[L]`; -1 for lanes that take no part.

        Raises:
            ArgumentError: A field is missing or unknown, or a tensor has another shape or dtype or is elsewhere.
                Nothing has changed.
        """
        step = self._arguments.step(
            fields, next_obs, terminated, truncated, final_obs, final_mask, mask, continues is True, priority
        )
        if priority is not None and self._settings is None:
            raise no_priorities(self.sampler, "$.priority")
        with self._turn(writes=True, changes=True):
            self._added = True
            return self._kernels.add(step)

    def sample(self, batch_size: int, *, beta: float | Tensor | None = None) -> Batch:
        """Draw a batch of tensors; does not wait.

        Args:
            batch_size: Items, drawn with replacement.
            beta: Exponent of the weights, a number or a tensor of one number; None: the sampler's.

        Returns:
            A `Batch` of tensors with the fields of a `ReplayBuffer`'s batch. Where there are no items, zeros with ids
            of -1, weights and discounts of 0, and a later call raises the error.

        Raises:
            ArgumentError: `batch_size` is not a positive integer, or the sampler has no priorities.
            NotEnoughData: No step was added yet.
        """
        n = check.integer(batch_size, "DeviceBuffer.sample(batch_size)", minimum=1)
        if n > self._most:
            raise too_many(self._most, n, "DeviceBuffer.sample(batch_size)")
        if beta is not None and self._settings is None:
            raise no_priorities(self.sampler, "$.beta")
        if beta is not None and not isinstance(beta, Tensor):
            beta = check.real(beta, "DeviceBuffer.sample(beta)", low=0.0)
        exponent = None if beta is None else self._arguments.beta(beta)
        with self._turn():
            if not self._added:
                raise NotEnoughData(message("at least 1 drawable item", "0", "DeviceBuffer.sample", "add steps first"))
            fields = self._kernels.sample(n, exponent)
            self._last = fields["ids",], fields["weights",]
        return self._batch(fields)

    def _batch(self, fields: dict[tuple[str, ...], Tensor]) -> Batch:
        ordered = {column.keys: fields[column.keys] for column in self.schema.columns}
        return Batch(nested((ordered | fields).items()))

    def update_priorities(self, ids: Any, td_error: Any) -> None:
        """Set priorities from TD errors, as `ReplayBuffer.update_priorities` does; does not wait.

        Late ids are dropped and counted as `stats().stale_updates`. Of several for one item the last one counts.

        Args:
            ids: Of a batch, int64 `[B]`.
            td_error: One number per id, of either sign, `[B]` or `[B, 1]`.

        Raises:
            ArgumentError: Tensors of another shape or dtype, or elsewhere; or the sampler has no priorities.
        """
        if self._settings is None:
            raise no_priorities(self.sampler, "DeviceBuffer.update_priorities")
        which = self._arguments.ids(ids, "$.ids")
        errors = self._arguments.td_errors(td_error, which, "$.td_error")
        with self._turn(changes=True):
            self._kernels.update(which, errors)

    def priorities(self, ids: Any) -> Tensor:
        """Raw priorities, float64 `[B]`, NaN where an item cannot be drawn; does not wait."""
        which = self._arguments.ids(ids, "$.ids")
        with self._turn():
            return self._kernels.priorities(which)

    def write(self, ids: Any, **fields: Any) -> None:
        """Write values back to stored steps, as `ReplayBuffer.write` does; does not wait.

        Late ids and -1 are left out; of several for one step the last one counts.

        Args:
            ids: Of steps, int64 of any shape.
            **fields: Values `[*ids.shape, *shape]` of fields that are `writable=True`, in their dtypes.

        Raises:
            ArgumentError: A field is not writable, or a tensor has another shape or dtype, or is elsewhere.
        """
        which, values = self._arguments.written(ids, fields)
        with self._turn(changes=True):
            self._kernels.write(which, values)

    def cut(self, mask: Any = None) -> None:
        """End the streams of lanes, as a reset by hand does; does not wait.

        Args:
            mask: Which lanes, bool `[L]`; None: all.
        """
        who = self._arguments.lanes(mask, "mask")
        with self._turn(writes=True, changes=True):
            self._kernels.cut(who)

    def clear(self) -> None:
        """Drop all steps; ids go on. Does not wait."""
        with self._turn(changes=True):
            self._kernels.clear()
            self._added = False

    def check(self) -> None:
        """Wait for the device, and raise what it found.

        Raises:
            PriorityError, StaleId, NotEnoughData, ArgumentError: A call before this one found it.
        """
        with self._lock:
            self._late.check()

    def can_sample(self, batch_size: int) -> bool:
        """Return whether any item can be drawn; wait, unless no step was added yet."""
        check.integer(batch_size, "DeviceBuffer.can_sample(batch_size)", minimum=1)
        if not self._added or self._settings is None:
            return self._added and self._counter(DRAWABLE) > 0
        with self._turn(look=False):
            return bool(self._state.sums[COUNT] > 0)

    def _counter(self, number: int) -> int:
        with self._turn(look=False):
            return int(self._state.counters[:, number].sum().item())

    def host(self) -> ReplayBuffer:
        """Return an ordinary buffer in RAM with a copy of everything, which draws on as this one would; waits.

        With it come `extend`, `read`, `follow`, `batches`, `column`, `save` and what else a `ReplayBuffer` has.
        """
        with self._copying:
            return self._copied(Twin(self._choices, self._layout, self._state))

    def _copied(self, twin: Twin) -> ReplayBuffer:
        """A twin that took over what is new."""
        try:
            with self._turn(look=False):
                instant = twin.begin(self._last, self._ahead)
            twin.follow(instant, self._ahead)
        finally:  # whatever came of it, an interrupt before the first row included, no call waits any more
            self._ahead.allow(None)
        return twin.buffer(instant, self._tally if twin is self._twin else None)

    def save(self, path: Any, **options: Any) -> Saved:
        """Save all of it, as `ReplayBuffer.save` does with the same options; waits until what is new is in RAM.

        The first save makes a copy of the buffer in RAM, which later ones bring up to date: what they copy and write
        are the steps that are new, and the priorities. Other threads go on adding and drawing meanwhile; what is saved
        is this instant. With `wait=False` a thread writes the files.

        `relive.load(path, device="cuda")` brings it back, and `relive.load(path)` loads it into RAM.

        Raises:
            ReliveError: Another thread captured calls in a CUDA graph, whose replays no save sees; that one can save.
        """
        if self._replayer not in (None, threading.get_ident()):
            remedy = "a save does not see what a CUDA graph replays meanwhile"
            raise ReliveError(
                message("a save in the thread that replays", "one in another", "DeviceBuffer.save", remedy)
            )
        with self._copying:
            if self._saved is not None:
                self._saved._ended.wait()  # it may still read what the twin has
            twin = self._twin = self._twin or Twin(self._choices, self._layout, self._state)
            copied = self._copied(twin)
            self._tally = copied._core.tally
            self._saved = copied.save(path, **options)
            return self._saved

    def autosave(self, path: Any, *, every: float = 1.0, keep: int = 1) -> Autosave:
        """Save what is new again and again, in a thread, as `ReplayBuffer.autosave` does with the same arguments.

        Raises:
            ReliveError: The buffer has an autosave that goes on. Once a CUDA graph has captured calls, its saves
                fail, and `stats().autosave` says so: let the thread that replays save.
        """
        kept = object.__new__(DeviceBuffer)
        kept.__dict__ = vars(self)  # the same buffer as another object, which outlives this one until it is saved
        self._autosave = begun(self, kept, self._autosave, os.fspath(path), every, keep)
        return self._autosave

    def _changes(self) -> object:
        return self._calls

    def _saver(self) -> Saver:
        self._tally = self._tally or Tally(np.random.default_rng())
        return saver_of(self._tally)

    def _inside(self) -> bool:
        saver = None if self._tally is None else self._tally.saver
        own: bool = self._lock._is_owned() or self._copying.taken()  # type: ignore[attr-defined]
        return own or forks.inside() or (saver is not None and saver.taken)

    def stats(self) -> Stats:
        """A snapshot of what happened, as `ReplayBuffer.stats`; waits, and copies no step."""
        twin = Twin(self._choices, self._layout, self._state)
        with self._turn(look=False):
            instant = twin.begin(self._last)
        found = twin.buffer(instant).stats()
        return found if self._autosave is None else found.__replace__(autosave=self._autosave.stats())

    def __reduce__(self) -> NoReturn:
        """Refuse `copy.deepcopy` and pickle.

        Raises:
            ReliveError: Always; it names what makes copies.
        """
        remedy = "`DeviceBuffer.of(buffer.host(), device=...)` makes a copy, `buffer.save(path)` a lasting one"
        raise ReliveError(message("a buffer in RAM", "one on a device", "DeviceBuffer.__reduce__", remedy))

    @property
    def capacity(self) -> int:
        """The most steps that are stored."""
        return self.num_envs * self._choices.steps

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        held = [*self._state.arrays().values(), self._state.flags, self._state.key, self._state.position]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def __len__(self) -> int:
        """Steps stored now; waits."""
        return self._counter(STORED)

    def __repr__(self) -> str:
        choices = f"{self.item!r}, {self.sampler!r}, {str(self.device)!r}"
        steps = f"{len(self)} of {self.capacity} steps, num_envs={self.num_envs}"
        return f"DeviceBuffer({steps}, {choices}, {readable(self.nbytes)})"


def _triton_kernels() -> type[Triton]:
    with needs("triton", "DeviceBuffer(kernels)"):
        from ._triton import Triton
    return Triton


def _philox(seed: Any) -> np.random.Philox:
    """The bit generator of a seed."""
    if not isinstance(seed, np.random.Generator):
        at = "DeviceBuffer(seed)"
        return np.random.Philox(None if seed is None else check.integer(seed, at, minimum=0, unbounded=True))
    if not isinstance(seed.bit_generator, np.random.Philox):
        wanted, got = "a generator of `numpy.random.Philox`, which a device has, too", type(seed.bit_generator).__name__
        raise ArgumentError(message(wanted, f"`{got}`", "DeviceBuffer(seed)"))
    return seed.bit_generator


def _device(given: Any) -> torch.device:
    """The device that is meant, seen to be there and to have float64, in which priorities are summed."""
    try:
        device = torch.device(given)
        there = torch.zeros(1, dtype=torch.float64, device=device)
        there.cpu()  # `"meta"` has no numbers
    except (RuntimeError, TypeError, AssertionError) as error:
        wanted, remedy = "a device of PyTorch's that is there and has float64", 'the same works on `"cpu"`'
        why = str(error).split("\n")[0]
        raise ArgumentError(message(wanted, f"`{given!r}` ({why})", "DeviceBuffer(device)", remedy)) from None
    return there.device


def _available(device: torch.device) -> int:
    """Return the bytes that a device has at most."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return available_bytes()
