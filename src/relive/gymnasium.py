"""Fill a buffer by stepping a Gymnasium environment.

Gymnasium's vector environments restart finished episodes in one of three ways (`metadata["autoreset_mode"]`). Each
needs its own handling of final observations and of steps that only reset; `Recorder` implements all three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from ._adapters.holding import HeldSteps
from ._base import check
from ._base.check import lanes_of
from ._base.nests import apart, copied, taken, with_finals
from ._base.types import Bool, Int64
from ._flow.copying import copying
from .buffer import ReplayBuffer
from .errors import ArgumentError, MissingExtra, message

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
except ImportError as error:
    remedy = "pip install 'relive[gymnasium]'"
    raise MissingExtra(message("the package `gymnasium` >= 1.1", "none", "relive.gymnasium", remedy)) from error

if TYPE_CHECKING:
    from .batch import Values
    from .processes.writer import Writer

# What the environment says of a step; `step(**extras)` cannot replace it.
_OWN = frozenset({"obs", "action", "reward", "next_obs", "terminated", "truncated", "env_ids"})
_SAME_STEP = AutoresetMode.SAME_STEP
_NO_IDS = np.empty(0, np.int64)
_BOOL = np.dtype(bool)
_SB3_LOOP = (
    "its algorithms take `replay_buffer_class=relive.sb3.ReplayBuffer`; in a loop of your own call `buffer.add`, with "
    "`truncated[i] = infos[i].get('TimeLimit.truncated', False)`, "
    "`terminated = dones & ~truncated`, and `next_obs[i] = infos[i]['terminal_observation']` where `dones[i]`"
)


class Recorder:
    """Wraps an environment and stores every real step in a buffer.

    Use it in place of the environment. It is a `gymnasium.vector.VectorEnv` around a vector environment and a
    `gymnasium.Wrapper` around a single one, so further wrappers go inside or outside; the buffer gets what the wrappers
    inside return. Everything else (spaces, `render`, `close`, ...) is the wrapped environment's own.

    * NEXT_STEP: the step that only resets is not stored.
    * SAME_STEP: the final observation is taken from `infos["final_obs"]`, not from the next episode.
    * DISABLED, and single environments: a reset starts a new episode; in mid-episode it cuts the stream. A lane that
      ended must be reset before the next step.

    If anything raises once the environment has moved (a value that the schema refuses, a missing `final_obs`, Ctrl-C),
    that step is lost: the streams are cut there and the next step starts at the environment's new observation. If the
    environment itself raised, its observation is unknown and `reset` is required.

    Args:
        env: A `gymnasium.vector.VectorEnv`, another environment that has `num_envs` and the same `reset` and `step`, or
            a single `gymnasium.Env`.
        buffer: Where the steps go; its `num_envs` must be the environment's, 1 for a single one. A `relive.Writer`
            records from another process; one from `buffer.writer(env_ids)` claims its lanes at the first `reset`.
        autoreset_mode: For vector environments whose metadata do not name one; None otherwise.
        hold: Whether steps are held until their episode is over: the next call of `step`, `reset` or `close` adds them,
            unless `discard` drops them before. A reset in mid-episode adds what is held, and cuts the stream, as
            without; `close` adds what is held of episodes under way. Until then the steps are in no draw and in no
            save, and they take memory: for every environment as many steps as the longest episode has, each with its
            `next_obs`. So bound episodes, for example with Gymnasium's `TimeLimit`. What is stored in the end is the
            same as without, but episode after episode, so ids may be others.

    Attributes:
        ids: The ids of the steps that the last call of `step` stored, int64; fewer than lanes where some were only
            reset. With `hold`, those of the episodes that the last call of `step`, `reset` or `close` added.

    Raises:
        ArgumentError: The environment is of another kind, the numbers of lanes differ, the autoreset mode is not known,
            or one was given that contradicts the environment.

    >>> import gymnasium, relive
    >>> envs = gymnasium.make_vec("Pendulum-v1", num_envs=2)
    >>> schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    >>> buffer = relive.ReplayBuffer(schema, 1000, num_envs=2)
    >>> recorder = Recorder(envs, buffer)
    >>> _ = recorder.reset(seed=0)
    >>> for _ in range(5):
    ...     _ = recorder.step(recorder.action_space.sample())
    >>> len(buffer)
    10

    The workers of an `AsyncVectorEnv` can write lanes of their own, so that nothing has to be stored again in the
    process that draws:

    >>> def recorded(writer):
    ...     return lambda: Recorder(gymnasium.make("Pendulum-v1"), writer)
    >>> buffer = relive.ReplayBuffer(schema, 1000, num_envs=2, storage=relive.Shared())
    >>> envs = gymnasium.vector.AsyncVectorEnv([recorded(buffer.writer([lane])) for lane in range(2)])
    >>> _ = envs.reset(seed=0)
    >>> _ = envs.step(envs.action_space.sample())
    >>> len(buffer)
    2
    >>> envs.close()
    >>> buffer.close()

    `step` has no further fields there: the workers get actions and nothing else.
    """

    def __new__(
        cls,
        env: Any,
        buffer: ReplayBuffer | Writer,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
        hold: bool = False,
    ) -> Recorder:
        """Choose the class that is a vector environment, or the one that is a single environment."""
        if cls is not Recorder:
            return super().__new__(cls)
        return super().__new__(_SingleRecorder if _num_envs(env) is None else _VectorRecorder)

    def __init__(
        self,
        env: Any,
        buffer: ReplayBuffer | Writer,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
        hold: bool = False,
    ) -> None:
        if not hasattr(buffer, "add"):
            remedy = "the environment comes first: `Recorder(env, buffer)`"
            raise ArgumentError(
                message("a buffer or a writer", f"`{type(buffer).__name__}`", "Recorder(buffer)", remedy)
            )
        self.env, self.buffer = env, buffer
        lanes = _num_envs(env)
        self._vector, self._lanes = lanes is not None, lanes or 1
        self._shape = (self._lanes,)
        self._quiet, self._copy = copying(self._lanes), copying(0)
        if self._lanes != buffer.num_envs:
            wanted = f"a buffer with num_envs={self._lanes}, as the environment has"
            raise ArgumentError(message(wanted, f"`{buffer.num_envs}`", "Recorder(buffer)"))
        self._mode = _vector_mode(env, autoreset_mode) if self._vector else _single_mode(env, autoreset_mode)
        self._held = HeldSteps(buffer, self._lanes) if check.flag(hold, "Recorder(hold)") else None
        self._resets_again = self._mode is AutoresetMode.NEXT_STEP and _resets_again(env)
        self._obs: Any = None  # None: never reset, or not known since something raised
        self._started = False
        self._ended: Int64 = _NO_IDS  # lanes that wait for a reset, ascending
        self.ids: Int64 = _NO_IDS

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<Recorder, {self.env}>"

    __str__ = __repr__

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Values, dict[str, Any]]:
        """Reset the environment, in DISABLED mode the lanes of `options["reset_mask"]`; cut streams in mid-episode.

        Raises:
            ArgumentError: A mask before all lanes have been reset, or after the environment itself raised.
        """
        mask = None if options is None or not self._vector else options.get("reset_mask")
        started = self._flags(mask, True, 'Recorder.reset(options["reset_mask"])')
        if self._obs is None and not started.all():
            got = f"a mask for lanes `{np.flatnonzero(started).tolist()}`"
            raise ArgumentError(message("a reset of all lanes", got, "Recorder.reset", self._why_reset()))
        if self._held is not None:
            self.ids = self._held.commit()
        self._obs = None
        # A copy, since environments take `reset_mask` out of it, which wrappers around this one still look for.
        given: dict[str, Any] = {} if seed is None else {"seed": seed}
        if options is not None:
            given["options"] = dict(options)
        result = self.env.reset(**given)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(
                message("`(obs, info)` from the environment's `reset`", f"`{type(result).__name__}`", "Recorder.reset")
            )
        obs, info = result
        waiting, restarted = self._ended, started[self._ended]
        started[waiting] = False
        if started.any():  # these were in mid-episode
            self._into.cut(self._named(np.flatnonzero(started)))
        self._ended = waiting if self._resets_again else waiting[~restarted]
        self._obs, self._started = copied(obs), True
        return obs, info

    def resume(self, obs: Any, ended: Any = None) -> None:
        """Go on in the middle of episodes, without a reset: the environment was put back where another one stood.

        With a buffer that was saved at the same moment, the next step continues the streams; nothing is cut.

        Args:
            obs: What the environment returned last, as `step` and `reset` return it.
            ended: Which lanes' episodes that step ended; None: no lane's. In SAME_STEP mode it does not matter.

        >>> import gymnasium, relive, tempfile
        >>> env, path = gymnasium.make("CartPole-v1").unwrapped, tempfile.mkdtemp()
        >>> schema = relive.Schema.from_spaces(env.observation_space, env.action_space)
        >>> recorder = Recorder(env, relive.ReplayBuffer(schema, 1000))
        >>> _ = recorder.reset(seed=0)
        >>> obs, *_ = recorder.step(0)
        >>> saved = recorder.buffer.save(path)
        >>> recorder = Recorder(env, relive.load(path))  # the same environment here, which stands where it stood
        >>> recorder.resume(obs)
        >>> _ = recorder.step(1)
        >>> recorder.buffer.stats().cuts
        0
        """
        waits = self._flags(ended, False, "Recorder.resume(ended)")
        self._obs, self._started = copied(obs), True
        self._ended = _NO_IDS if self._mode is AutoresetMode.SAME_STEP else np.flatnonzero(waits)

    def step(self, action: Any, **extras: Any) -> tuple[Values, Any, Any, Any, dict[str, Any]]:
        """Step the environment and store the step.

        Args:
            action: As the environment wants it.
            **extras: Further fields of the schema, and `priority` if there is one, each with one entry per lane.

        Returns:
            What the environment returned.

        Raises:
            ArgumentError: `reset` has to be called first, an extra has the name of what the environment returns, or a
                final observation is missing in SAME_STEP mode.
            SchemaError, PriorityError: As in `ReplayBuffer.add`; the environment has moved, and the streams are cut.
        """
        own = self.__dict__  # where a class has a `__getattr__`, Python takes long to find an attribute
        before, waiting, held = own["_obs"], own["_ended"], own["_held"]
        if before is None or extras or len(waiting):
            self._require(extras)
        own["ids"] = _NO_IDS if held is None else held.commit()
        # What was done, since some environments write to the array: they clip or scale it in place.
        done = own["_copy"](action)
        if done is None:
            done = apart(action)
        # Until `env.step` returns, the environment's observation is unknown, wherever an exception comes from.
        own["_obs"], now, waits = None, None, _NO_IDS
        try:
            result: tuple[Values, Any, Any, Any, dict[str, Any]] = own["env"].step(action)
            now = own["_quiet"](result)  # a copy, since some environments reuse their arrays
            if now is None:  # an episode ended, or more than bytes have to be copied
                _require_five(result)
            obs, reward, terminated, truncated, infos = result
            if now is None:
                ended = _ended_lanes(terminated, truncated, own["_shape"])
                waits = _NO_IDS if own["_mode"] is _SAME_STEP else ended
                now = obs.copy() if type(obs) is ndarray else copied(obs)
                if waits is not ended and len(ended):
                    obs = with_finals(obs, infos, ended)
            if len(waiting) or extras:
                fields = {"obs": before, "action": done, "reward": reward, "next_obs": obs}
                flags = {"terminated": terminated, "truncated": truncated}
                ids = self._store(waiting, {**fields, **flags, **extras})
            else:  # the same, without the mappings
                ids = (held or own["buffer"]).add(
                    obs=before, action=done, reward=reward, next_obs=obs, terminated=terminated, truncated=truncated
                )
            if held is None:
                own["ids"] = ids
        except BaseException:
            self._into.cut(self._named(np.arange(self._lanes)))
            if now is not None:
                self._ended, self._obs = waits, now
            raise
        own["_ended"], own["_obs"] = waits, now
        return result

    def discard(self, env_ids: Any = None) -> int:
        """Leave the episodes of all environments, or of `env_ids`, out of the buffer, as if they had never been.

        These are the episodes that were under way, or ended, in the last `step`. What follows of one that is under way
        is left out, too, up to its end or a reset. Episodes that have begun no step yet are not meant.

        Args:
            env_ids: Distinct numbers of environments, from 0; None for all.

        Returns:
            How many steps that were held are dropped.

        Raises:
            ArgumentError: The recorder holds no steps, or there is no such environment.

        >>> import gymnasium, relive
        >>> env = gymnasium.make("CartPole-v1")
        >>> schema = relive.Schema.from_spaces(env.observation_space, env.action_space)
        >>> recorder = Recorder(env, relive.ReplayBuffer(schema, 1000), hold=True)
        >>> for spoilt in (True, False):
        ...     over, _ = False, recorder.reset(seed=0)
        ...     while not over:
        ...         *_, terminated, truncated, _ = recorder.step(0)
        ...         over = terminated or truncated
        ...     if spoilt:
        ...         dropped = recorder.discard()
        >>> recorder.close()
        >>> dropped == len(recorder.buffer) > 5
        True
        """
        if self._held is None:
            wanted, got = "a recorder that holds steps", "one that adds them at once"
            raise ArgumentError(message(wanted, got, "Recorder.discard", "make it with `hold=True`"))
        which = np.zeros(self._lanes, bool)
        which[slice(None) if env_ids is None else lanes_of(env_ids, self._lanes)] = True
        return self._held.discard(which)

    def _finish(self) -> None:
        """Add what is held of all episodes, also of those under way."""
        if self._held is not None:
            self.ids = self._held.commit(np.ones(self._lanes, bool))

    @property
    def _into(self) -> Any:
        """Receiver of steps: the buffer, or what holds them."""
        return self.buffer if self._held is None else self._held

    def _require(self, extras: dict[str, Any]) -> None:
        """Refuse a step before the first reset, a step of lanes that ended and were not reset, and taken names."""
        if self._obs is None:
            wanted = "`reset` before the next `step`" if self._started else "`reset` before the first `step`"
            raise ArgumentError(message(wanted, "none", "Recorder.step", self._why_reset() if self._started else None))
        if self._mode is AutoresetMode.DISABLED and len(self._ended):
            remedy = 'call `reset(options={"reset_mask": mask})` first, with True for these' if self._vector else None
            which = f"lanes `{self._ended.tolist()}`" if self._vector else "an episode"
            wanted = "lanes in mid-episode" if self._vector else "an episode that goes on"
            raise ArgumentError(message(wanted, f"{which} that ended", "Recorder.step", remedy or "call `reset` first"))
        if not _OWN.isdisjoint(extras):
            name = min(_OWN & extras.keys())
            got = f"`{name}`, which comes from the environment"
            raise ArgumentError(message("further fields of the schema", got, f"$.{name}"))

    def _flags(self, given: Any, default: bool, at: str) -> Bool:
        """Return a new array of one flag per lane."""
        flags = np.full(self._shape, default) if given is None else np.atleast_1d(np.array(given, bool))
        if flags.shape != self._shape:
            raise ArgumentError(message(f"flags of shape `{self._shape}`", f"shape `{flags.shape}`", at))
        return flags

    def _why_reset(self) -> str:
        if not self._started:
            return "call `reset()` without a mask first"
        return "its last `reset` or `step` raised, so its state is unknown; call `reset()`"

    def _store(self, waiting: Int64, fields: dict[str, Any]) -> Int64:
        """Store the step of all lanes but those that it only reset."""
        if not len(waiting):
            return self._into.add(**fields)  # type: ignore[no-any-return]
        lanes = np.delete(np.arange(self._lanes), waiting)
        if not len(lanes):
            return _NO_IDS
        return self._into.add(env_ids=self._named(lanes), **taken(fields, lanes, self._lanes))  # type: ignore[no-any-return]

    def _named(self, lanes: Int64) -> Int64:
        """Return the buffer's numbers of these lanes of the environment: a writer's can be any of its buffer's."""
        theirs = None if self._held is not None else getattr(self.buffer, "env_ids", None)
        return lanes if theirs is None else np.asarray(theirs)[lanes]


def _ended_lanes(terminated: Any, truncated: Any, shape: tuple[int]) -> Int64:
    """Return the lanes whose episodes these flags, of this shape, end; ascending."""
    if type(terminated) is type(truncated) is ndarray and terminated.shape == truncated.shape == shape:
        ended = terminated | truncated
        if ended.dtype is _BOOL:
            return ended.nonzero()[0]
    ended = np.atleast_1d(np.asarray(terminated, bool) | np.asarray(truncated, bool))
    if ended.shape != shape:
        raise ArgumentError(message(f"flags of shape `{shape}`", f"shape `{ended.shape}`", "$.terminated"))
    return np.flatnonzero(ended)


def _require_five(result: Any) -> None:
    """Refuse what is not the result of a step."""
    if not isinstance(result, tuple) or len(result) != 5:
        got = f"{len(result)}" if isinstance(result, tuple) else f"`{type(result).__name__}`"
        raise ArgumentError(message("five values from the environment's `step`", got, "Recorder.step"))


class _SingleRecorder(Recorder, gymnasium.Wrapper[Any, Any, Any, Any]):
    """A recorder that is a `gymnasium.Wrapper`."""

    def __init__(
        self,
        env: Any,
        buffer: ReplayBuffer | Writer,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
        hold: bool = False,
    ) -> None:
        gymnasium.Wrapper.__init__(self, env)
        Recorder.__init__(self, env, buffer, autoreset_mode=autoreset_mode, hold=hold)

    def close(self) -> None:
        """Add what is held, and close the environment."""
        try:
            self._finish()
        finally:
            self.env.close()

    def set_wrapper_attr(self, name: str, value: Any, **choices: Any) -> bool:
        """Set an attribute of the wrapped environment: a recorder has none that would be set from outside."""
        done: bool = self.env.set_wrapper_attr(name, value, **choices)
        return done


def _of_env(name: str) -> Any:
    """Return a property for an attribute of `VectorEnv` that takes it from the wrapped environment."""
    return property(lambda self: getattr(self.env, name, None), lambda self, value: setattr(self.env, name, value))


class _VectorRecorder(Recorder, VectorEnv[Any, Any, Any]):  # type: ignore[misc]  # the argument is called `actions`
    """A recorder that is a `VectorEnv`; no `VectorWrapper`, which takes instances of `VectorEnv` alone."""

    spec, render_mode, closed = _of_env("spec"), _of_env("render_mode"), _of_env("closed")
    np_random, np_random_seed = _of_env("np_random"), _of_env("np_random_seed")

    def __init__(
        self,
        env: Any,
        buffer: ReplayBuffer | Writer,
        *,
        autoreset_mode: AutoresetMode | str | None = None,
        hold: bool = False,
    ) -> None:
        super().__init__(env, buffer, autoreset_mode=autoreset_mode, hold=hold)
        # Wrappers around this one read the mode here, also where it was stated.
        self.metadata = {**_metadata(env), "autoreset_mode": self._mode}
        self.num_envs = self._lanes

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, "unwrapped", self.env)

    def render(self) -> Any:
        return self.env.render()

    def close(self, **choices: Any) -> None:
        try:
            self._finish()
        finally:
            self.env.close(**choices)

    def __del__(self) -> None:
        """Leave the environment open: its owner may still use it."""


def _num_envs(env: Any) -> int | None:
    """Return the lanes of a vector environment, or None for a single one."""
    if any(base.__name__ == "VecEnv" for base in type(env).__mro__):
        got = f"`{type(env).__name__}`, a Stable-Baselines3 `VecEnv`, whose `step` returns four values"
        raise ArgumentError(message("a Gymnasium environment", got, "Recorder(env)", _SB3_LOOP))
    if not isinstance(env, type):
        for holder in (env, getattr(env, "unwrapped", env)):  # wrappers of single environments hide `num_envs`
            if getattr(holder, "num_envs", None) is not None:
                return check.integer(holder.num_envs, "Recorder(env).num_envs", minimum=1)
        if isinstance(env, gymnasium.Env):
            return None
    wanted = "a `gymnasium.Env`, a `gymnasium.vector.VectorEnv`, or an environment with `num_envs`"
    raise ArgumentError(message(wanted, f"`{env!r}`", "Recorder(env)"))


def _resets_again(env: Any) -> bool:
    """Tell if the next step resets lanes that ended even where `reset` came in between.

    Gymnasium's workers forget that they are to reset only where they share memory.
    """
    inner = getattr(env, "unwrapped", env)
    return isinstance(inner, gymnasium.vector.AsyncVectorEnv) and not inner.shared_memory


def _metadata(env: Any) -> dict[str, Any]:
    return getattr(env, "metadata", None) or {}


def _vector_mode(env: Any, stated: AutoresetMode | str | None) -> AutoresetMode:
    named = _metadata(env).get("autoreset_mode")
    if stated is None:
        return _mode_of(named, "Recorder(env)", "state it: `Recorder(env, buffer, autoreset_mode=...)`")
    mode = _mode_of(stated, "Recorder(autoreset_mode)", None)
    if named is not None and _mode_of(named, "Recorder(env)", None) is not mode:
        wanted = f"`{_mode_of(named, 'Recorder(env)', None).name}`, as the environment's metadata say"
        remedy = "leave it out, or make the environment in the other mode"
        raise ArgumentError(message(wanted, f"`{mode.name}`", "Recorder(autoreset_mode)", remedy))
    return mode


def _mode_of(mode: Any, at: str, remedy: str | None) -> AutoresetMode:
    for known in AutoresetMode:
        if mode is known or (isinstance(mode, str) and mode in (known.name, known.value)):
            return known
    wanted = "an autoreset mode: " + ", ".join(f"`{known.name}`" for known in AutoresetMode)
    raise ArgumentError(message(wanted, f"`{mode!r}`", at, remedy))


def _single_mode(env: Any, stated: AutoresetMode | str | None) -> AutoresetMode:
    if stated is not None:
        remedy = "leave it out; `gymnasium.wrappers.Autoreset` is recognised"
        got = f"`{stated!r}` for a single environment"
        raise ArgumentError(message("None", got, "Recorder(autoreset_mode)", remedy))
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.Autoreset):
            return AutoresetMode.NEXT_STEP
        env = env.env
    return AutoresetMode.DISABLED
