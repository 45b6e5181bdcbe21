"""What a recorder asks of an environment, and environments of tensors that have the form of Gymnasium's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor

from .._schema.fields import Tree
from ..errors import ArgumentError, message
from ._tensors import Nest, fitted, flags

if TYPE_CHECKING:
    from ..device import DeviceBuffer

Mode: TypeAlias = Literal["NEXT_STEP", "SAME_STEP", "DISABLED"]
MODES: tuple[Mode, ...] = get_args(Mode)
_FOUR = (
    "put the recorder around the simulator's own environment, inside of wrappers that merge the two flags into one "
    "(`RslRlVecEnvWrapper`, for example)"
)


class Step(NamedTuple):
    """A step of all lanes; tensors `[L, ...]`, nested as observations are.

    Attributes:
        obs: The observation after the step; in lanes that this step reset, the first one of the next episode.
        reward: Rewards.
        terminated: Bool: the episode ended in a terminal state.
        truncated: Bool: the episode was stopped from outside.
        finals: The observations that episodes ended on, read in lanes that ended; None: `obs` has them.
        known: Bool: where such an observation is known; None: in every lane that ended.
        returned: What the caller of `Recorder.step` gets.

    >>> Step._fields
    ('obs', 'reward', 'terminated', 'truncated', 'finals', 'known', 'returned')
    """

    obs: Nest
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    finals: Nest | None
    known: Tensor | None
    returned: Any


class Simulator:
    """Environments with `num_envs` lanes whose `step` and `reset` return tensors as Gymnasium's vector environments do.

    Subclasses say what is different in one simulator. `Recorder` takes the first one whose `fits` says so; a class of
    one's own is given to it as `Recorder(env, buffer, simulator=...)`.

    Args:
        env: The environment.
        buffer: Where the steps will go.
        mode: The autoreset mode if the environment does not name one: a name of Gymnasium's `AutoresetMode`.

    Attributes:
        lanes: How many lanes the buffer has.
        device: Where the buffer is.
        fields: The schema's fields of observations.
        mode: The autoreset mode: in SAME_STEP alone final observations come elsewhere than in `obs`.

    Raises:
        ArgumentError: The autoreset mode is not known, or one was given that contradicts the environment.

    >>> class Mine(Simulator):
    ...     name = "my simulator"
    ...     remedy = "switch `keep_last` on"
    ...
    ...     def finals_of(self, infos, obs):
    ...         return (infos["last"], None) if "last" in infos else None
    """

    name: ClassVar[str] = "the environment"
    # How to make the simulator keep final observations, for the warning.
    remedy: ClassVar[str] = 'return them as `infos["final_obs"]`, of all lanes or with a mask `infos["_final_obs"]`'

    def __init__(self, env: Any, buffer: DeviceBuffer, mode: object = None) -> None:
        self.env = env
        self.lanes, self.device = buffer.num_envs, torch.device(buffer.device)
        self.fields: Tree = buffer.schema.tree["obs"]
        self.mode: Mode = self._mode(mode)

    @classmethod
    def fits(cls, env: Any) -> bool:
        """Return True if `env` is of this kind."""
        return attribute(env, "num_envs") is not None

    @classmethod
    def spaces_of(cls, env: Any) -> tuple[Any, Any]:
        """Return the spaces of one lane's observations and actions; None if the environment has none."""
        return attribute(env, "single_observation_space"), attribute(env, "single_action_space")

    @classmethod
    def lanes_of(cls, env: Any) -> int | None:
        """Return the number of lanes; None: known after the first reset."""
        return int(attribute(env, "num_envs"))

    def mode_of_env(self) -> object:
        """Return the autoreset mode that the environment names, or None."""
        return (attribute(self.env, "metadata") or {}).get("autoreset_mode")

    @property
    def gives_finals(self) -> bool:
        """True if it is known to give the final observation of every episode, so that nothing has to be watched."""
        return self.mode != "SAME_STEP"

    def lanes_reset(self, choices: dict[str, Any]) -> Any:
        """Return the lanes that a call of `reset` with these keywords resets, or None for all."""
        return (choices.get("options") or {}).get("reset_mask")

    def fitted(self, obs: Any, at: str) -> Nest:
        """Select the part of an observation of all lanes that the schema names."""
        return fitted(obs, self.fields, self.lanes, self.device, at)

    def reset(self, *given: Any, **choices: Any) -> tuple[Nest, Any]:
        """Reset the environment; the observation of all lanes, and what the caller gets."""
        if given:  # of which releases do not agree what the first one is
            raise ArgumentError(message("arguments by name", "a positional one", "Recorder.reset"))
        returned = self.env.reset(**choices)
        if not isinstance(returned, tuple) or len(returned) != 2:
            got = f"`{type(returned).__name__}`"
            raise ArgumentError(message("`(obs, infos)` from the environment's `reset`", got, "Recorder.reset"))
        return self.fitted(returned[0], "$.obs"), returned

    def step(self, action: Any) -> Step:
        """Step the environment."""
        returned = self.env.step(action)
        if not isinstance(returned, tuple) or len(returned) != 5:
            got = f"{len(returned)}" if isinstance(returned, tuple) else f"`{type(returned).__name__}`"
            raise ArgumentError(message("five values from the environment's `step`", got, "Recorder.step", _FOUR))
        obs, reward, terminated, truncated, infos = returned
        return self.parsed(obs, reward, terminated, truncated, infos, returned)

    def parsed(self, obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any, returned: Any) -> Step:
        """Parse a step from these parts, with its final observations."""
        obs = self.fitted(obs, "$.next_obs")
        ends = flags(terminated, self.lanes, self.device, "$.terminated")
        stops = flags(truncated, self.lanes, self.device, "$.truncated")
        if self.mode != "SAME_STEP":
            return Step(obs, reward, ends, stops, None, None, returned)
        found = self.finals_of(infos, obs)
        if found is None:  # no lane ended, or the environment does not keep them: the host cannot tell
            return Step(obs, reward, ends, stops, None, torch.zeros_like(ends), returned)
        finals, known = found
        return Step(obs, reward, ends, stops, self.fitted(finals, "$.final_obs"), known, returned)

    def finals_of(self, infos: Any, obs: Nest) -> tuple[Any, Tensor | None] | None:
        """Return a step's final observations in SAME_STEP mode, and where they are known (None: in every ended lane).

        Args:
            infos: The fifth value of `step`.
            obs: The part of the first one that the schema names.

        Returns:
            None where `infos` has no such key.
        """
        return keyed(infos, "final_obs", self.lanes, self.device)

    def _mode(self, stated: object) -> Mode:
        named = self.mode_of_env()
        if stated is None:
            return _parsed(named, "Recorder(env)", "state it: `Recorder(env, buffer, autoreset_mode=...)`")
        mode = _parsed(stated, "Recorder(autoreset_mode)", None)
        if named is not None and _parsed(named, "Recorder(env)", None) != mode:
            wanted = f"`{_parsed(named, 'Recorder(env)', None)}`, as the environment says"
            remedy = "leave it out, or make the environment in the other mode"
            raise ArgumentError(message(wanted, f"`{mode}`", "Recorder(autoreset_mode)", remedy))
        return mode


def keyed(infos: Any, key: str, lanes: int, device: torch.device) -> tuple[Any, Tensor | None] | None:
    """Return the final observations of all lanes under `key`, with the mask under `_key` or None; None without them."""
    finals = infos.get(key) if hasattr(infos, "get") else None
    if finals is None:
        return None
    known = infos.get(f"_{key}")
    return finals, None if known is None else flags(known, lanes, device, f"$.infos._{key}")


def chain(env: Any) -> Iterator[Any]:
    """Yield the environment, those that it wraps, and the innermost one."""
    seen: list[int] = []
    while env is not None and id(env) not in seen:
        yield env
        seen.append(id(env))
        inner = vars(env).get("env") if hasattr(env, "__dict__") else None
        env = getattr(env, "unwrapped", None) if inner is None else inner


def attribute(env: Any, name: str) -> Any:
    """Return the attribute of the outermost environment that has it: Gymnasium's wrappers hide most of them."""
    for each in chain(env):
        found = getattr(each, name, None)
        if found is not None:
            return found
    return None


def of_class(env: Any, *names: str) -> Any:
    """Find the outermost environment of the chain whose class has one of these names; return None if there is none.

    By name, since the simulators are not imported here.
    """
    for each in chain(env):
        if any(base.__name__ in names for base in type(each).__mro__):
            return each
    return None


def _parsed(mode: object, at: str, remedy: str | None) -> Mode:
    name = str(getattr(mode, "name", mode))
    for known in MODES:
        if name in (known, known.title().replace("_", "")):
            return known
    wanted = "an autoreset mode: " + ", ".join(f"`{known}`" for known in MODES)
    raise ArgumentError(message(wanted, f"`{mode!r}`", at, remedy))
