"""Pipelines, which the doctor examines, and the patient, which runs one."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base import check
from relive._base.types import Float64, Int64
from relive.errors import ArgumentError, ReliveError, message

from ._world import COURSE, Course, World

GAMMA = 0.5
_MOST_LANES = 1000  # observations are exact in float32
_BATCH = 8  # small, so that draws without replacement show what is likely
_NUMBERS = {float, int, bool, np.float32, np.float64}
MakeEnv = Callable[[], "gymnasium.Env[Any, Any]"]


class Item(NamedTuple):
    """One stored item as a learner sees it: the target is `reward + bootstrap * V(next_obs)`.

    `items` and `sample` may also return one `Item` of columns: arrays or tensors `[B, ...]`, on any device.

    Attributes:
        obs: The observation where it starts, a number or an array of one number.
        reward: The (n-step) reward.
        bootstrap: The factor of `V(next_obs)`: `gamma**m` for m steps, 0 where the learner does not bootstrap.
        next_obs: The observation that the learner bootstraps from.
        handle: What `update` takes for this item, in items that `sample` returns.
        weight: Its importance-sampling weight, in items that `sample` returns.

    >>> Item(obs=3, reward=4.0, bootstrap=0.5, next_obs=4).bootstrap
    0.5
    """

    obs: Any
    reward: Any
    bootstrap: Any
    next_obs: Any
    handle: Any = None
    weight: Any = 1.0


@runtime_checkable
class Pipeline(Protocol):
    """A collection loop together with the buffer that it fills: what the doctor examines.

    `run` may have two further keyword arguments, which table B needs: `capacity` (steps that the buffer holds over all
    lanes; None: enough for every step) and `reset_at` (numbers of calls before which the loop resets all environments,
    in mid-episode, in the way in which its user would).

    Two further methods are for prioritized buffers, table C: `sample(n)` returns `n` items that have a `handle` (and a
    `weight`, where there are importance-sampling weights), and `update(handles, td_errors)` gives them TD errors.

    Two more are for table D: `arrays()` returns the arrays or tensors in which the buffer keeps its steps, by name, and
    `choose(masses, n)` draws `n` positions in `masses`, a float64 array `[N]`, with the buffer's own sums and random
    numbers, each in proportion to its mass. `probability()` returns the probability of each of `items()`, in their
    order, in a draw of one; with `sample(n)`.

    And for table F: `sample(n)`; `write(handles, values)`, which writes a number to the step of each handle, and
    `values()`, the number of each of `items()` in their order; `save()`, which returns what `load(saved)` takes.

    With an attribute `threads = True`, of a buffer to which one thread adds while another one draws, `sample` is called
    from another thread while `run` adds, and `run` goes on in another thread while `sample` draws: table E.

    A `run` without `autoreset_mode` makes its environments in its own way, and is examined once. An attribute `modes`
    names the autoreset modes that the loop knows, if not all three; `lanes` is the number of
    environments that it wants, if not 2, and `batch` how many items it draws at a time, if not 8.

    >>> import gymnasium, numpy as np
    >>> from relive.doctor import examine
    >>> class Mine:
    ...     def run(self, make_env, num_envs, calls, n_step, gamma, *, autoreset_mode):
    ...         self.stored = []
    ...         envs = gymnasium.vector.SyncVectorEnv([make_env] * num_envs, autoreset_mode=autoreset_mode)
    ...         obs, _ = envs.reset()
    ...         for _ in range(calls):
    ...             next_obs, reward, terminated, truncated, infos = envs.step(np.zeros(num_envs, int))
    ...             self.stored += zip(obs, reward, gamma * ~terminated, next_obs)
    ...             obs = next_obs
    ...     def items(self):
    ...         return self.stored
    >>> [(finding.probe, finding.wrong) for finding in examine(Mine(), n_steps=[1], modes=["next_step"]).findings]
    [('phantom step', 40)]
    """

    def run(
        self,
        make_env: MakeEnv,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
    ) -> None:
        """Step `num_envs` environments `calls` times and fill the buffer; an earlier run's items are overwritten."""

    def items(self) -> Iterable[Any]:
        """Return every stored item: `(obs, reward, bootstrap, next_obs)`, or objects or mappings with these names."""


class PlainItem(NamedTuple):
    """An item in plain numbers."""

    obs: float
    reward: float
    bootstrap: float
    next_obs: float
    handle: Any
    weight: float

    def __str__(self) -> str:
        return f"reward {self.reward:g}, bootstrap {self.bootstrap:g}, next_obs {self.next_obs:g}"


@dataclass
class Patient:
    """A pipeline under examination.

    Attributes:
        make: Returns the pipeline: a new one at each call, where one was given that can be made anew.
        name: What it is called.
        course: How the episodes of its environments go on and end.
    """

    make: Callable[[], Any]
    name: str
    course: Course = COURSE

    def __post_init__(self) -> None:
        try:
            self.pipeline = self.make()
        except ReliveError:
            raise
        except Exception as error:
            got = f"`{type(error).__name__}: {error}`"
            raise ArgumentError(message("a pipeline", got, self.name)) from error
        if not isinstance(self.pipeline, Pipeline) or isinstance(self.pipeline, type):
            got = f"`{type(self.pipeline).__name__}`"
            raise ArgumentError(message("a pipeline, with methods `run` and `items`", got, self.name))
        given = inspect.signature(self.pipeline.run).parameters
        self._takes = given.keys()
        any_name = any(each.kind is each.VAR_KEYWORD for each in given.values())
        self._takes_mode = any_name or "autoreset_mode" in given
        self.can_size, self.can_reset = "capacity" in self._takes, "reset_at" in self._takes
        self.prioritizes = all(callable(getattr(self.pipeline, name, None)) for name in ("sample", "update"))
        self.can_look, self.can_choose = (callable(getattr(self.pipeline, name, None)) for name in ("arrays", "choose"))
        at = f"{self.name}.modes"
        modes = getattr(self.pipeline, "modes", AutoresetMode if self._takes_mode else [AutoresetMode.NEXT_STEP])
        if isinstance(modes, str) or not isinstance(modes, Iterable):
            raise ArgumentError(message("a list of autoreset modes", f"`{modes!r}`", at))
        self.modes = tuple(mode_of(mode, at) for mode in modes)
        self.lanes = check.integer(getattr(self.pipeline, "lanes", 2), f"{self.name}.lanes")
        self.batch = check.integer(getattr(self.pipeline, "batch", _BATCH), f"{self.name}.batch", minimum=1)
        self.threaded = check.flag(getattr(self.pipeline, "threads", False), f"{self.name}.threads")
        if not 1 <= self.lanes <= _MOST_LANES:
            wanted = f"1 to {_MOST_LANES} environments"
            raise ArgumentError(message(wanted, f"`{self.lanes}`", f"{self.name}.lanes"))
        self.world = World(self.course)

    def renew(self) -> None:
        """Go on with a new pipeline, where one can be made."""
        self.pipeline = self.make()

    def run(
        self,
        calls: int,
        n_step: int,
        mode: AutoresetMode,
        gate: Callable[[], None] = lambda: None,
        *,
        continues: bool = False,
        **choices: Any,
    ) -> None:
        """Run the pipeline in new environments, which call `gate` before each step.

        Where it `continues`, episodes are counted on, so steps of the run before are told from those of this one.

        Raises:
            ArgumentError: It raised, or did not step the environments.
        """
        self.world = World(self.course, gate, self.world if continues else None)
        given = {name: value for name, value in choices.items() if name in self._takes}
        given |= {"autoreset_mode": mode} if self._takes_mode else {}
        _seed()
        with self.sound("run"):
            self.pipeline.run(self.world.make_env, self.lanes, calls, n_step, GAMMA, **given)
        if not self.world.steps:
            remedy = "step the environments that `make_env` returns, in this process"
            raise ArgumentError(message("a run that steps its environments", "no step", f"{self.name}.run", remedy))

    def items(self) -> list[PlainItem]:
        """Return every stored item.

        Raises:
            ArgumentError: The pipeline raised, or returned something else.
        """
        with self.sound("items"):
            return self._read(self.pipeline.items(), "items")

    def draw(self, n: int) -> list[PlainItem]:
        """Draw items, whether they have handles or not; whatever the pipeline raises passes.

        Raises:
            ArgumentError: It returned something else.
        """
        return self.drawn(n)()

    def drawn(self, n: int) -> Callable[[], list[PlainItem]]:
        """Draw items, and return a function that reads them, each time it is called."""
        given = self.pipeline.sample(n)
        kept = given if isinstance(given, Item) else list(given)
        return lambda: self._read(kept, "sample")

    def sample(self, n: int) -> list[PlainItem]:
        """Draw items; whatever the pipeline raises passes.

        Raises:
            ArgumentError: It returned something else.
            WithoutHandle: It returned an item without a handle.
        """
        items = self.draw(n)
        if any(item.handle is None for item in items):
            raise WithoutHandle(message("items with a `handle`, for `update`", "one without", f"{self.name}.sample"))
        return items

    def update(self, handles: list[Any], td_errors: Any) -> None:
        """Give drawn items TD errors; whatever the pipeline raises passes."""
        self.pipeline.update(handles, np.asarray(td_errors, np.float64))

    def arrays(self) -> dict[str, Any]:
        """Return the arrays in which the steps are kept, without what else the mapping has.

        Raises:
            ArgumentError: The pipeline raised, or returned something else.
        """
        with self.sound("arrays"):
            return {name: value for name, value in self.pipeline.arrays().items() if hasattr(value, "tolist")}

    def choose(self, masses: Float64, n: int) -> Int64:
        """Draw positions in proportion to masses, `[n]`.

        Raises:
            ArgumentError: The pipeline raised, or returned something else.
        """
        with self.sound("choose"):
            at = on_host(self.pipeline.choose(masses, n))
        if at.shape != (n,) or at.dtype.kind not in "iu" or at.min() < 0 or at.max() >= len(masses):
            got = f"{at.dtype} {list(at.shape)} from {at.min()} to {at.max()}" if at.size else "none"
            raise ArgumentError(message(f"{n} positions below {len(masses)}", got, f"{self.name}.choose"))
        return at.astype(np.int64)

    def sound(self, method: str) -> _Sound:
        """Turn what the pipeline raises in a block into an error that names the method."""
        return _Sound(f"{self.name}.{method}")

    def _read(self, items: Any, method: str) -> list[PlainItem]:
        at = f"{self.name}.{method}"
        return columns(items, at) if isinstance(items, Item) else rows(list(items), at)


def _seed() -> None:
    """Let libraries that draw from global generators draw the same items each time; the examination puts them back."""
    np.random.seed(0)
    random.seed(0)
    torch = sys.modules.get("torch")
    if torch is not None:  # on a CPU alone, `torch.manual_seed` writes down its callers, a millisecond each
        (torch if torch.accelerator.is_available() else torch.default_generator).manual_seed(0)


class WithoutHandle(ArgumentError):
    """A drawn item that nothing can be told of: the pipeline's fault, and not its buffer's."""


class _Sound:
    """Turns what a pipeline raises into an error that says which pipeline is broken."""

    def __init__(self, at: str) -> None:
        self._at = at

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ReliveError):
            got = f"`{type(error).__name__}: {error}`"
            raise ArgumentError(message("a pipeline that runs", got, self._at)) from error


def rows(items: Sequence[Any], at: str) -> list[PlainItem]:
    """Return items as numbers, all at once where nothing in them but a handle is more than a number.

    Raises:
        ArgumentError: One is no item.
    """
    if {*map(type, items)} == {Item}:
        *values, handles, weights = zip(*items, strict=True)
        if {*map(type, chain(*values, weights))} <= _NUMBERS:
            return plain(*(map(float, column) for column in values), handles, map(float, weights))
    return [stored(item, at) for item in items]


def stored(item: Any, at: str) -> PlainItem:
    """Return an item as numbers.

    Raises:
        ArgumentError: It is no item.
    """
    try:
        *values, handle, weight = item if type(item) is Item else _item(item)
        obs, reward, bootstrap, next_obs = map(_number, values)
        return PlainItem(obs, reward, bootstrap, next_obs, handle, 1.0 if weight is None else _number(weight))
    except (TypeError, ValueError, AttributeError) as error:
        wanted = "items `(obs, reward, bootstrap, next_obs)`, each a number"
        raise ArgumentError(message(wanted, f"`{type(item).__name__}` ({error})", at)) from None


def _item(given: Any) -> Item:
    """Make an `Item` of a mapping, of a tuple, or of an object with its names."""
    if isinstance(given, Mapping):
        return Item(**given)
    own = {name: getattr(given, name) for name in ("handle", "weight") if hasattr(given, name)}
    if isinstance(given, tuple | list) and not hasattr(given, "obs"):
        return Item(*given)._replace(**own)
    return Item(given.obs, given.reward, given.bootstrap, given.next_obs, **own)


def columns(item: Item, at: str) -> list[PlainItem]:
    """Return the items of one `Item` of columns.

    Raises:
        ArgumentError: They are no columns of one length.
    """
    try:
        numbers = [_column(value) for value in item[:4]]
        count = len(numbers[0])
        handles = [None] * count if item.handle is None else getattr(item.handle, "tolist", lambda: item.handle)()
        weights = _column(item.weight) if hasattr(item.weight, "__len__") else [_number(item.weight)] * count
        return plain(*numbers, handles, weights)
    except (TypeError, ValueError, AttributeError) as error:
        wanted = "an `Item` of columns, arrays or tensors `[B, ...]`"
        raise ArgumentError(message(wanted, f"`{error}`", at)) from None


def plain(*columns: Iterable[Any]) -> list[PlainItem]:
    """Make items of columns, in a third of the time that calls of their class take."""
    return [*map(tuple.__new__, repeat(PlainItem), zip(*columns, strict=True))]


def _column(values: Any) -> list[float]:
    return [*map(float, values.reshape(len(values), -1)[:, -1].tolist())] if len(values) else []


def on_host(value: Any) -> np.ndarray[Any, Any]:
    """Return the NumPy array of an array, of a tensor on any device, or of numbers."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _number(value: Any) -> float:
    """Return a number, or the last one of an array, such as the newest frame of a stack."""
    if isinstance(value, int | float):
        return float(value)
    flat = np.asarray(value.tolist() if hasattr(value, "detach") else value).reshape(-1)
    return float(flat[-1]) if len(flat) else float("nan")


def mode_of(mode: Any, at: str = "examine(modes)") -> AutoresetMode:
    """Return an autoreset mode, given by itself or by its name: `next_step`, `NEXT_STEP` or `NextStep`.

    Raises:
        ArgumentError: There is none of this name.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for known in AutoresetMode:
        if str(mode).lower().replace("_", "") == known.value.lower():
            return known
    wanted = f"one of {', '.join(f'`{known.name.lower()}`' for known in AutoresetMode)}"
    raise ArgumentError(message(wanted, f"`{mode}`", at))
