"""`DeviceBuffer`: a replay buffer of tensors, for simulators that step all environments in one call."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from .._base import check, forks
from .._base.check import no_priorities
from .._base.nests import nested
from .._base.types import Array
from .._buffer.arguments import too_many
from .._buffer.choices import Choices
from .._device_samplers import draws_of
from .._device_samplers.draws import Found, WeightedDraws
from .._device_samplers.rows import Written
from .._flow.call_lock import CallLock
from .._ring.lanes import BOUNDARIES
from ..batch import Batch, TorchBatch
from ..buffer import ReplayBuffer
from ..checkpoints.autosave import Autosave, begun
from ..errors import ArgumentError, NotEnoughData, ReliveError, message
from . import _host, _page
from ._arguments import Arguments
from ._built import available_on, device_of, generator_on, reader_of, refuse, ring_of, unknown
from ._late import Late
from ._losses import Losses
from ._stats import stats_of
from ._step import LanesStep
from ._transitions import TransitionReader

if TYPE_CHECKING:
    from typing import Self

    from .._buffer.stats import Stats
    from ..checkpoints._saved import Saved
    from ..checkpoints._saving import Saver
    from ..items import Item
    from ..samplers import Sampler
    from ..schema import Schema
    from ._kept import DeviceKeeping
    from ._saves import Copies


class DeviceBuffer:
    """A replay buffer whose steps live on a device, for simulators that step there; no call waits for the device.

    Every call of `add` is about all environments. So it writes one row of every tensor, and `id // num_envs` is the
    number of the call that stored a step.

    Args:
        schema: The fields of a step; dtypes that PyTorch has.
        capacity: Steps that are kept, over all environments (>= `num_envs`): those of the newest
            `capacity // num_envs` calls.
        num_envs: Environments; every call is about all of them, or about those of a mask.
        item: `Transitions(...)`, with chunks or without, or `Sequences(...)`, within episodes or across.
        sampler: `Uniform()`, `Prioritized(...)` or `Recent(...)`, with replacement, or a `Blend` of these. Ages count
            calls at which items start, those that leave an environment out included.
        device: Where the tensors live: `"cuda"`, `"cuda:1"`, `"cpu"`, any that has float64; `"mps"` has not.
        seed: An integer for a generator of the buffer's own on the device, which a CUDA graph has to know
            (`graph.register_generator_state(buffer.generator)`). None: PyTorch's default generator.
        boundaries: Final observations that are kept, as a share of `capacity`. Once a final observation is
            overwritten, its step and all before it can be drawn no more, so shorter episodes cost steps.
        masks: True if environments may be left out of calls. Otherwise the first call with `mask` changes it, which
            a CUDA graph that was captured before does not know.

    Attributes:
        generator: The generator of the draws; None for PyTorch's default one.

    Raises:
        ArgumentError: A choice of another kind, or one that a device buffer lacks; the message says what works.

    `add`, `sample`, `read`, `update_priorities`, `write`, `cut`, `clear` and `priorities` never wait; `check`, `len`,
    `stats`, `can_sample`, `host`, `save` and `repr` do. Mistakes in values that only the device sees (TD errors that
    are not finite, ids that no step had, a draw when there are no items) change nothing; `check()` raises them at once,
    and the next `sample`, `read` or `priorities` once they are known. Calls that change the buffer raise none: each is
    made. All tensors stay where they are, so calls can be captured in a CUDA graph and replayed. The same seed gives
    the same draws on the same kind of device.

    Priorities are float32; `priority**alpha` counts in whole units of 2^-24 at least, 4e-6 with 42 million items, and
    above 2^18 all are equal. Sums of rewards are float32. `starts=k` and `every=k` count calls. A sequence across
    episodes has `mask` False where its environment was left out; after an episode that ends with its last step
    `all_obs` has the final observation. Of what no device buffer has (`Once`, `Hindsight`, limiters) a `ReplayBuffer`
    brings batches to the device by `prefetch`.

    An item can be drawn as soon as its `n_step` calls (of sequences `length + n_step - 1`, across episodes `burn_in`
    more) are over, whether its episode has ended or not.

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
        seed: int | None = None,
        boundaries: float = BOUNDARIES,
        masks: bool = False,
        **elsewhere: Any,
    ) -> None:
        for name in elsewhere:
            raise unknown(name)
        share = check.real(boundaries, "DeviceBuffer(boundaries)", low=0.0, high=1.0)
        choices = Choices.checked(schema, capacity, num_envs, item, sampler, None, share, "DeviceBuffer")
        refuse(choices)
        self._choices, self.device = choices, device_of(device)
        self.schema, self.item, self.sampler = choices.schema, choices.item, choices.sampler
        self.num_envs, self.boundaries = choices.num_envs, choices.boundaries
        self.generator = generator_on(self.device, seed)
        self._ring = ring_of(choices, self.device)
        self._ring.holes = check.flag(masks, "DeviceBuffer(masks)")
        self._draws = draws_of(self._ring, self.sampler, self.generator)
        self._reader = reader_of(self._ring, self.item, schema)
        self._arguments = Arguments(self._ring.fields, self.num_envs, self.device)
        self._late = Late(self._ring.counts)
        self._lock = threading.Condition()
        self._stream: Any = None
        self._done: Any = None
        self._added = False  # a bool, since `torch.compile` would compile anew for each number
        self._last: tuple[Tensor, Tensor] | None = None
        self._most = available_on(self.device) // schema.nbytes
        self._losses = Losses()
        self._calls = 0
        self._adder: int | None = None  # the thread that wrote last
        self._replayer: int | None = None  # the thread that replays captured or compiled calls
        self._copies: Copies | None = None
        self._autosave: Autosave | None = None
        self._keeping: DeviceKeeping | None = None

    @classmethod
    def of(cls, buffer: ReplayBuffer, *, device: torch.device | str = "cuda", seed: int | None = None) -> Self:
        """Return a device buffer with the steps and priorities of an ordinary one; the ids are new.

        Where environments have different numbers of steps, the newest ones share a call; with `starts=k`, up to k - 1
        calls lie between them.

        Args:
            buffer: What is copied; it stays as it is.
            device: As for a new one.
            seed: As for a new one.

        Raises:
            ArgumentError: A choice that a device buffer lacks, or a buffer with a `RateLimiter`, or none of this kind.
        """
        if not isinstance(buffer, ReplayBuffer):
            wanted, remedy = "a `ReplayBuffer`", "of a device buffer `buffer.host()` is one"
            raise ArgumentError(message(wanted, f"`{type(buffer).__name__}`", "DeviceBuffer.of(buffer)", remedy))
        if buffer.limiter is not None:
            wanted, remedy = "a buffer without a limiter", "one thread adds and learns here"
            raise ArgumentError(message(wanted, f"`{buffer.limiter!r}`", "DeviceBuffer.of(buffer)", remedy))
        kept: dict[str, Any] = {"num_envs": buffer.num_envs, "item": buffer.item, "sampler": buffer.sampler}
        share = _host.boundaries_for(buffer)
        made = cls(buffer.schema, buffer.capacity, **kept, device=device, seed=seed, boundaries=share)
        _host.fill(made, made._ring, buffer)
        return made

    def _turn(self, writes: bool = False, look: bool = True, changes: bool = False) -> AbstractContextManager[None]:
        """Return the turn of a call; none while PyTorch compiles, which traces operations alone."""
        if torch.compiler.is_compiling():
            self._replayer = self._adder  # saves of other threads do not see what compiled calls write
            return nullcontext()
        return self._ordered(writes, look, changes)

    @contextmanager
    def _ordered(self, writes: bool, look: bool, changes: bool) -> Iterator[None]:
        """Let one call at a time run, ordered after the one before on any stream.

        A call that changes the buffer raises no earlier call's error, since a loop that logs the error would lose the
        change: a `cut` that was not made joins two episodes.

        Args:
            writes: True if the call writes rows, which copies to the host may still have to read.
            look: True if the errors of earlier calls are raised.
            changes: True if the call changes the buffer; then none is raised.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise CallLock.refusal()
        with self._lock:
            self._calls += look
            captured = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
            ordered = self.device.type == "cuda" and not captured
            if writes:
                self._adder = threading.get_ident()
            if captured:
                self._replayer = threading.get_ident()
            elif writes and self._copies is not None:
                self._copies.wait()
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
        given as whole stacks. A stack that the stored frames cannot show, since its stream does not begin padded or
        does not continue in the next stack, is left out with its step, and a notice tells how many there were.

        Args:
            next_obs: Observations after the step, nested as in the schema.
            terminated: Whether the episode ended in a terminal state, bool `[L]`.
            truncated: Whether it was ended from outside, such as by a time limit, bool `[L]`.
            final_obs: Observations after the last step of an episode, read in lanes that ended; None: `next_obs` has
                them. Simulators that reset by themselves give the next episode's first observation as `next_obs`.
            final_mask: Lanes whose final observation is known, among those that ended, bool `[L]`; None: all. Without
                one, the step's discount is 0, and a truncated one is counted as `stats().unbootstrapped`.
            mask: Lanes that take part, bool `[L]`; None: all. It costs 14 to 40 launches more.
            continues: Promise that `obs` is the `next_obs` of each lane's step before, where that has not ended, and
                that stacks begin padded. Then nothing is compared; otherwise a stream is cut where it differs, for
                some 35 launches more.
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
            fields, next_obs, terminated, truncated, final_obs, final_mask, mask, check.flag(continues, "$.continues")
        )
        given = self._arguments.priorities(priority)
        if given is not None and self._draws.weighted is None:
            raise no_priorities(self.sampler, "$.priority")
        with self._turn(writes=True, changes=True):
            ring = self._ring
            if not ring.holes and (mask is not None or (ring.history and not step.continues)):
                self._leave_out()
            written = self._take(step, given)
            return torch.where(written.active, written.ids, ring.none) if ring.holes else written.ids

    def _take(self, step: LanesStep, priority: Tensor | None) -> Written:
        """Store a step of all lanes."""
        written = self._ring.add(step)
        self._draws.added(written, priority)
        self._added = True
        return written

    def _leave_out(self) -> None:
        """Count steps from now on, since lanes may be left out."""
        if self._replayer is not None:
            wanted, remedy = "calls without `mask`, as those in the CUDA graph", "say `DeviceBuffer(masks=True)`"
            raise ReliveError(message(wanted, "one with it", "DeviceBuffer.add(mask)", remedy))
        self._ring.holes = True

    def sample(self, batch_size: int, *, beta: float | Tensor | None = None) -> TorchBatch:
        """Draw a batch of tensors; does not wait.

        Args:
            batch_size: Items, drawn with replacement.
            beta: Exponent of the weights, a number or a tensor of one number; None: the sampler's.

        Returns:
            A `Batch` of tensors with the fields of a `ReplayBuffer`'s batch. Where there are no items, ids are -1,
            weights and discounts 0, other values any, and a later call raises the error.

        Raises:
            ArgumentError: `batch_size` is not a positive integer, or the sampler has no priorities.
            NotEnoughData: No step was added yet.
        """
        n = check.integer(batch_size, "DeviceBuffer.sample(batch_size)", minimum=1)
        if n > self._most:
            raise too_many(self._most, n, "DeviceBuffer.sample(batch_size)")
        if beta is not None and self._draws.weighted is None:
            raise no_priorities(self.sampler, "$.beta")
        exponent = None if beta is None else self._arguments.beta(beta)
        with self._turn():
            if not self._added:
                raise NotEnoughData(message("at least 1 drawable item", "0", "DeviceBuffer.sample", "add steps first"))
            found = self._draws.draw(n, exponent)
            self._ring.drew(n, found.there)
            self._last = found.ids, found.weights
            batch = self._batch(found)
        return batch if self._keeping is None else self._keeping.took(batch)

    def read(self, ids: Any) -> TorchBatch:
        """Return the items that start at `ids`, as `sample` does; does not wait.

        Args:
            ids: int64 `[B]`.

        Returns:
            A `Batch` with weights of 1. Of an item that cannot be drawn the id is -1, weight and discount are 0, and
            other values any.

        Raises:
            ArgumentError: A tensor of another shape or dtype, or elsewhere.
        """
        which = self._arguments.ids(ids, "$.ids")
        with self._turn():
            there = self._ring.drawable(which)
            found = torch.where(there, which, self._ring.none)
            return self._batch(Found(found, found % self._ring.size, there.float(), there))

    def _batch(self, found: Found) -> TorchBatch:
        fields = self._reader.read(found.ids, found.at)
        if isinstance(self._reader, TransitionReader):
            fields["discount",] = fields["discount",] * found.there
        fields["ids",], fields["weights",] = found.ids, found.weights
        ordered = {column.keys: fields[column.keys] for column in self.schema.columns}
        return Batch(nested((ordered | fields).items()))  # type: ignore[return-value]

    def update_priorities(self, ids: Any, td_error: Any) -> None:
        """Set priorities from TD errors, as `ReplayBuffer.update_priorities` does; does not wait.

        Late ids are dropped and counted as `stats().stale_updates`. Of several for one item the last one counts.

        Args:
            ids: Of a batch, int64 `[B]`.
            td_error: One number per id, of either sign, `[B]` or `[B, 1]`.

        Raises:
            ArgumentError: Tensors of another shape or dtype, or elsewhere.
        """
        which = self._arguments.ids(ids, "$.ids")
        errors = self._arguments.td_errors(td_error, which, "$.td_error")
        if (draws := self._draws.weighted) is not None:
            if self._keeping is not None:
                self._keeping.gave(which, errors)
            with self._turn(changes=True):
                draws.update(which, errors)

    def priorities(self, ids: Any) -> Tensor:
        """Return raw priorities, float32 `[B]`, NaN where an item cannot be drawn; does not wait."""
        draws = self._weighted("DeviceBuffer.priorities")
        which = self._arguments.ids(ids, "$.ids")
        with self._turn():
            return draws.priorities(which)

    def probability(self, ids: Any) -> Tensor:
        """Return the exact probability of items in a draw of one, float64 `[B]`, NaN where one cannot be drawn.

        Over all items that can be drawn the sum is 1. Does not wait.
        """
        which = self._arguments.ids(ids, "$.ids")
        with self._turn():
            return torch.where(self._ring.drawable(which), self._draws.chance(which), torch.nan)

    def _weighted(self, at: str) -> WeightedDraws:
        if self._draws.weighted is None:
            raise no_priorities(self.sampler, at)
        return self._draws.weighted

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
            self._ring.write(which, values)

    def cut(self, mask: Any = None) -> None:
        """End the streams of lanes, as a reset by hand does; does not wait.

        Args:
            mask: Which lanes, bool `[L]`; None: all.
        """
        who = self._arguments.lanes(mask, "mask")
        with self._turn(writes=True, changes=True):
            self._ring.cut(who)
            self._draws.drop()

    def clear(self) -> None:
        """Drop all steps; ids go on. Does not wait."""
        with self._turn(changes=True):
            self._ring.clear()
            self._draws.clear()
            self._added = False

    def check(self) -> None:
        """Wait for the device, and raise what it found.

        Raises:
            PriorityError, StaleId, NotEnoughData, ArgumentError: A call before this one found it.
        """
        with self._lock:
            self._late.check()
            self._losses.tell(self._ring, self.boundaries)

    def can_sample(self, batch_size: int) -> bool:
        """Return True if any item can be drawn; wait, unless no step was added yet."""
        check.integer(batch_size, "DeviceBuffer.can_sample(batch_size)", minimum=1)
        with self._turn(look=False):
            return self._added and bool(self._draws.items() > 0)

    def host(self) -> ReplayBuffer:
        """Return an ordinary buffer in RAM with the same steps and priorities, and ids of its own; waits.

        With it come `extend`, `follow`, `batches`, `column`, `save` and what else a `ReplayBuffer` has. It keeps more
        steps where items show some before the oldest one. Items start at the same steps, and fields with `every=k` are
        kept there. Across episodes sequences end where a lane was left out, if they start at every so many steps.
        """
        with self._turn(look=False):
            return _host.made_of(self._choices, self._ring, self._draws)

    def save(self, path: Any, **options: Any) -> Saved:
        """Save all of it, with the options of `ReplayBuffer.save`; waits until what is new is in RAM.

        Later saves copy and write the calls that are new, final observations and priorities. Other threads go on adding
        and drawing meanwhile, and wait only where they would overwrite a row that is still to be copied; what is saved
        is this instant. With `wait=False` a thread writes the files.

        `relive.load(path, device="cuda")` brings it back: on the same kind of device to the bit, generator included.

        Raises:
            ReliveError: Another thread replays calls that it captured in a CUDA graph or compiled, which no save sees;
                that thread can save.
        """
        if self._replayer not in (None, threading.get_ident()):
            remedy = "a save does not see what a CUDA graph or compiled calls write meanwhile"
            raise ReliveError(
                message("a save in the thread that replays", "one in another", "DeviceBuffer.save", remedy)
            )
        return self._saves().save(check.path(path, "DeviceBuffer.save(path)"), **options)

    def _saves(self) -> Copies:
        if self._copies is None:
            with forks.importing:
                from ._saves import Copies

            turn = partial(self._turn, look=False)
            self._copies = Copies(self._choices, self._ring, self._draws, self.generator, self._lock, turn)
        return self._copies

    def autosave(self, path: Any, *, every: float = 1.0, keep: int = 1) -> Autosave:
        """Save what is new again and again, in a thread, as `ReplayBuffer.autosave` does with the same arguments.

        Raises:
            ReliveError: The buffer has an autosave that goes on. Once a CUDA graph has captured calls, or compiled ones
                were made, its saves fail, and `stats().autosave` says so: let the thread that replays save.
        """
        kept = object.__new__(DeviceBuffer)
        kept.__dict__ = vars(self)  # the same buffer as another object, which outlives this one until it is saved
        self._autosave = begun(self, kept, self._autosave, check.path(path, "autosave(path)"), every, keep)
        return self._autosave

    def keep_batches(self, path: Any, last: int = 8) -> None:
        """Keep the last batches in a file, as `ReplayBuffer.keep_batches` does, without waiting for the device.

        On a CUDA device the newest ones may still be on their way when the process is killed. What compiled calls and
        CUDA graphs sample is not kept, and neither are generators and ages.
        """
        with forks.importing:
            from ._kept import kept_by

        self._keeping = kept_by(self._keeping, path, last)

    def _generate(self, state: Array, kind: str) -> None:
        """Take over the state of a generator; of another kind of device, begin one that the state decides."""
        self.generator = self._draws.generator = torch.Generator(self.device)
        if kind == self.device.type:
            self.generator.set_state(torch.from_numpy(state.copy()))
        else:
            self.generator.manual_seed(zlib.crc32(state.tobytes()))

    def _restored(self) -> None:
        """Take in tensors that were filled from a save."""
        self._draws.restored()
        self._added = int(self._ring.next) > int(self._ring.cleared)
        self._late.forget()

    def _changes(self) -> object:
        return self._calls

    def _saver(self) -> Saver:
        return self._saves().saver

    def _inside(self) -> bool:
        own: bool = self._lock._is_owned()  # type: ignore[attr-defined]
        return own or forks.inside() or (self._copies is not None and self._copies.taken)

    def stats(self) -> Stats:
        """Return a snapshot of what happened, as `ReplayBuffer.stats` does; waits.

        `size`, `cuts`, `unbootstrapped` and `ends` count what is stored.
        """
        with self._turn(look=False):
            self._losses.tell(self._ring, self.boundaries)
            autosave = None if self._autosave is None else self._autosave.stats()
            return stats_of(self._ring, self._draws, self.sampler, self._last, self.capacity, self.nbytes, autosave)

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
        """The bytes of all tensors."""
        return self._ring.nbytes + self._draws.nbytes

    def __len__(self) -> int:
        """Return the steps that are stored now; waits."""
        with self._turn(look=False):
            return len(self._ring.stored())

    def __repr__(self) -> str:
        return _page.named(self)

    def _repr_html_(self) -> str:
        return _page.shown(self)

    def report(self, path: Any) -> str:
        """Write a page of choices and counts, and return its absolute path; waits.

        `buffer.host().report(path)` has the plots, too.

        Raises:
            ArgumentError: `path` is no path.
        """
        return _page.written(self, path)
