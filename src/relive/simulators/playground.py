"""MuJoCo Playground and Brax: environments in JAX, whose step leads from a state to the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor
from torch.utils.dlpack import from_dlpack

from .._base.extras import needs
from .._base.nests import located
from ._tensors import Nest, parts_of
from .simulator import Simulator, Step, of_class

if TYPE_CHECKING:
    from ..device import DeviceBuffer

_KEY = "AutoResetWrapper_final_obs"
_RESETTING = ("BraxAutoResetWrapper", "AutoResetWrapper")


class Playground(Simulator):
    """Batched environments with Brax's interface, as `wrap_for_brax_training` makes them.

    `reset(rng)` and `step(state, action)` are compiled with `jax.jit`, and the recorder keeps the state. `step` of the
    recorder takes an action as a tensor and returns `(obs, reward, terminated, truncated, info)`, all but `info` as
    tensors that share JAX's memory (DLPack).

    Final observations come from `info["AutoResetWrapper_final_obs"]`. Where the release does not keep them, they are
    taken from the step inside of the wrapper that resets, and so is `truncation`, which `full_reset=True` clears.

    Attributes:
        state: The state after the last call.
    """

    name: ClassVar[str] = "MuJoCo Playground"
    remedy: ClassVar[str] = f'keep the observation before a reset as `info["{_KEY}"]` in the wrapper that resets'

    def __init__(self, env: Any, buffer: DeviceBuffer, mode: object = None) -> None:
        super().__init__(env, buffer, mode)
        with needs("jax", "Recorder(env)"):
            import jax
        inner, self._inside = _watched(env)
        self._of_jax = jax.dlpack.from_dlpack
        self._reset = jax.jit(env.reset)

        def step(state: Any, action: Any) -> tuple[Any, Any]:
            state = inner.step(state, action)
            return state, self._inside.pop() if self._inside else {}

        self._step = jax.jit(step)
        self.state: Any = None

    @classmethod
    def fits(cls, env: Any) -> bool:
        """Return True if `env` is of this kind."""
        return hasattr(env, "observation_size") and hasattr(env, "action_size") and not hasattr(env, "num_envs")

    @classmethod
    def spaces_of(cls, env: Any) -> tuple[Any, Any]:
        """Return the shapes of one lane's observation and action."""
        return env.observation_size, env.action_size

    @classmethod
    def lanes_of(cls, env: Any) -> int | None:
        """Return None: the number of lanes, that of the keys, is known after the first reset."""
        return None

    def mode_of_env(self) -> object:
        """Return the autoreset mode: SAME_STEP."""
        return "SAME_STEP"

    @property
    def gives_finals(self) -> bool:
        """True if the wrapper that resets is the outermost one, so that the step inside of it is seen."""
        return of_class(self.env, *_RESETTING) is self.env

    def lanes_reset(self, choices: dict[str, Any]) -> Any:
        """Return None: a reset is of all lanes."""
        return None

    def reset(self, *given: Any, **choices: Any) -> tuple[Nest, Any]:
        """Reset all lanes; what the caller gets are the observation, as tensors, and the state's `info`."""
        self.state = self._reset(*given, **choices)
        obs = _tensors(self.state.obs)
        return self.fitted(obs, "$.obs"), (obs, self.state.info)

    def step(self, action: Any) -> Step:
        """Step all lanes."""
        self.state, inside = self._step(self.state, self._of_jax(action.detach().contiguous()))
        info = self.state.info
        infos = {**info, **inside}
        obs, reward = _tensors(self.state.obs), from_dlpack(self.state.reward)
        over, stopped = from_dlpack(self.state.done) != 0, from_dlpack(infos["truncation"]) != 0
        ends = over & ~stopped
        return self.parsed(obs, reward, ends, stopped, infos, (obs, reward, ends, stopped, info))

    def finals_of(self, infos: Any, obs: Nest) -> tuple[Any, Tensor | None] | None:
        """Return the observations before resets, of all lanes."""
        return (_tensors(infos[_KEY]), None) if _KEY in infos else None


class _Inner:
    """The environment inside of the wrapper that resets; notes what each of its steps led to.

    The step is traced once, and what is noted is a value of that trace.
    """

    def __init__(self, env: Any, noted: list[Any]) -> None:
        self._env, self._noted = env, noted

    def __getattr__(self, name: str) -> Any:
        if name in ("_env", "_noted"):
            raise AttributeError(name)
        return getattr(self._env, name)

    def step(self, state: Any, action: Any) -> Any:
        state = self._env.step(state, action)
        self._noted.append({_KEY: state.obs, "truncation": state.info["truncation"]})
        return state


def _watched(env: Any) -> tuple[Any, list[Any]]:
    """Wrap a noting environment in a twin of the wrapper that resets, with its notes; leave any other as it is."""
    noted: list[Any] = []
    if of_class(env, *_RESETTING) is not env:
        return env, noted
    twin = object.__new__(type(env))
    twin.__dict__.update(env.__dict__, env=_Inner(env.env, noted))
    return twin, noted


def _tensors(arrays: Any) -> Nest:
    """Convert JAX's arrays to tensors over the same memory."""
    tensors: Nest = located(lambda array, at: from_dlpack(array), arrays, "", parts_of)
    return tensors
