"""The recorder: an environment of a simulator whose steps go into a buffer on the device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._base.nests import apart
from ..errors import ArgumentError, ReliveWarning, message
from ._lost import Lost
from ._tensors import Nest, flags, held, mask_of, merged, replaced, same_device
from .schemas import field_tree, kind_of, same_parts
from .simulator import Simulator, Step, attribute

if TYPE_CHECKING:
    from ..device import DeviceBuffer

# What the environment and the recorder say of a step; `step(**extras)` cannot replace it.
_OWN = frozenset({"obs", "action", "reward", "next_obs", "terminated", "truncated"})
_OWN |= {"final_obs", "final_mask", "mask", "continues"}


class Recorder:
    """Steps a simulator's environment and stores every real step in a `relive.DeviceBuffer`, without waiting for it.

    Use it in place of the environment: `step` and `reset` go through it and return what the environment returns;
    everything else (spaces, `render`, `close`, ...) is the environment's own. Put it around the simulator's own
    environment, inside of wrappers that merge `terminated` and `truncated`.

    Known are Isaac Lab, mjlab, ManiSkill, MuJoCo Playground, and environments of tensors with `num_envs` whose `step`
    and `reset` are those of Gymnasium's vector environments. Each gives final observations under a key of its own;
    where one is missing, truncated steps are drawn with discount 0 and counted (`stats().unbootstrapped`), and one
    `ReliveWarning` says how to switch it on.

    * SAME_STEP: in lanes that ended, the final observation takes the place of the next episode's first one.
    * NEXT_STEP: the step that only resets a lane is left out.
    * DISABLED: a lane that ended is left out until it is reset. The host does not know which ones ended, so a step of
      such lanes is no error.

    Of observations, the parts that the buffer's schema names are stored. If anything raises once the environment has
    moved, that step is lost: the streams are cut there and the next step starts at the environment's new observation.
    If the environment itself raised, its observation is unknown and `reset` is required.

    Args:
        env: The environment, with as many lanes as the buffer and on its device.
        buffer: Where the steps go.
        autoreset_mode: For environments that do not name one; None otherwise.
        simulator: A subclass of `Simulator` for environments of another form; None: the one that fits.
        hold: False; `relive.gymnasium.Recorder` can hold steps until their episode is over.

    Attributes:
        ids: The ids of the steps that the last call of `step` stored, int64 `[L]`, -1 for lanes left out; None before
            the first step.
        simulator: What the recorder knows of the environment's form.

    Raises:
        ArgumentError: The environment is of another kind, lanes or devices differ, the autoreset mode is not known, or
            one was given that contradicts the environment.
        SchemaError: The schema names a part of observations that the environment lacks, or one of another shape.

    >>> import relive, torch
    >>> class Counting:  # in the place of a simulator
    ...     num_envs, metadata = 2, {"autoreset_mode": "SAME_STEP"}
    ...
    ...     def reset(self, **_):
    ...         self.t = torch.zeros(2, 1)
    ...         return self.t, {}
    ...
    ...     def step(self, action):
    ...         self.t = self.t + 1
    ...         no = torch.zeros(2, dtype=torch.bool)
    ...         return self.t, action[:, 0], no, no, {}
    >>> schema = relive.Schema(obs=relive.Field((1,)), action=relive.Field((1,)))
    >>> buffer = relive.DeviceBuffer(schema, 1000, num_envs=2, device="cpu", seed=0)
    >>> recorder = Recorder(Counting(), buffer)
    >>> obs, _ = recorder.reset()
    >>> for _ in range(3):
    ...     obs, *_ = recorder.step(torch.ones(2, 1))
    >>> recorder.ids.tolist(), len(buffer)
    ([4, 5], 6)
    """

    def __init__(
        self,
        env: Any,
        buffer: DeviceBuffer,
        *,
        autoreset_mode: Any = None,
        simulator: type[Simulator] | None = None,
        hold: bool = False,
    ) -> None:
        if hold:
            wanted, remedy = (
                "steps that are added at once",
                "use `relive.gymnasium.Recorder`",
            )
            raise ArgumentError(message(wanted, "`hold=True`", "Recorder(hold)", remedy))
        kind = simulator or kind_of(env)
        if kind is None:
            wanted = "an environment with `num_envs`, or one of MuJoCo Playground's"
            raise ArgumentError(message(wanted, f"`{env!r}`", "Recorder(env)"))
        self.env, self.buffer = env, buffer
        lanes = kind.lanes_of(env)
        if lanes not in (None, buffer.num_envs):
            wanted = f"a buffer with num_envs={lanes}, as the environment has"
            raise ArgumentError(message(wanted, f"`{buffer.num_envs}`", "Recorder(buffer)"))
        self.simulator = kind(env, buffer, autoreset_mode)
        self._require_parts()
        self._lost = None if self.simulator.gives_finals else Lost(self.simulator.device)
        self._obs: Nest | None = None  # None: never reset, or not known since something raised
        self._started = False
        self._waiting: Tensor | None = None  # lanes that wait for a reset; None: none
        self._continues = False
        self.ids: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("env", "simulator"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<Recorder, {self.env}>"

    __str__ = __repr__

    @property
    def num_envs(self) -> int:
        """The number of lanes."""
        return self.simulator.lanes

    def reset(self, *given: Any, **choices: Any) -> Any:
        """Reset the environment, or some of its lanes; cut the streams of those in mid-episode.

        Args:
            *given: As the environment wants it.
            **choices: Likewise. Some lanes alone are reset by `env_ids=` (Isaac Lab, mjlab), `options={"env_idx": ...}`
                (ManiSkill) or `options={"reset_mask": ...}`.

        Returns:
            What the environment returned; lanes that were not reset keep the observation that they had. Simulators
            observe all lanes anew, with other noise: a second observation of a state that has one.

        Raises:
            ArgumentError: Some lanes before all have been reset, or after the environment itself raised.
            SchemaError: The observation is not as the schema says.
        """
        which = self.simulator.lanes_reset(choices)
        at = "Recorder.reset"
        mask = None if which is None else mask_of(which, self.num_envs, self.simulator.device, at)
        before, waiting = self._obs, self._waiting
        if mask is not None and before is None:
            raise ArgumentError(message("a reset of all lanes", "one of some lanes", at, self._why_reset()))
        self._obs = None
        obs, returned = self.simulator.reset(*given, **choices)
        if mask is None or before is None:
            self.buffer.cut()
            self._obs, self._waiting, self._continues = held(obs), None, True
        else:
            self.buffer.cut(mask if waiting is None else mask & ~waiting)  # the others are in mid-episode no more
            obs = merged(mask, obs, before)
            returned = (replaced(returned[0], held(obs)), *returned[1:])
            self._obs, self._waiting = obs, None if waiting is None else waiting & ~mask
        self._started = True
        return returned

    def resume(self, obs: Any, ended: Any = None) -> None:
        """Go on in the middle of episodes, without a reset: the environment was put back where another one stood.

        Args:
            obs: What the environment returned last, as `step` and `reset` return it.
            ended: Which lanes' episodes that step ended, bool `[L]`; None: no lane's. In SAME_STEP mode it does not
                matter.
        """
        sim = self.simulator
        self._waiting = None
        if ended is not None and sim.mode != "SAME_STEP":
            self._waiting = flags(ended, sim.lanes, sim.device, "Recorder.resume(ended)")
        self._obs, self._started, self._continues = held(sim.fitted(obs, "Recorder.resume(obs)")), True, False

    def step(self, action: Any, **extras: Any) -> Any:
        """Step the environment and store the step.

        Args:
            action: A tensor `[L, ...]`, or nested ones, as the environment and the schema have it.
            **extras: Further fields of the schema, and `priority` if there is one, tensors `[L, ...]`.

        Returns:
            What the environment returned; for MuJoCo Playground `(obs, reward, terminated, truncated, info)`.

        Raises:
            ArgumentError: `reset` has to be called first, or an extra has the name of what the environment returns; or
                as in `DeviceBuffer.add`.
            SchemaError: An observation is not as the schema says. If this or `add` raises, the environment has moved,
                and the streams are cut.
        """
        self._require(extras)
        before, waiting, now, ended = self._obs, self._waiting, None, None
        done = apart(action)  # what was done: some environments clip or scale it in place
        # Until the environment returns, its observation is unknown, wherever an exception comes from.
        self._obs = self.ids = None
        try:
            step = self.simulator.step(action)
            ended, now = step.terminated | step.truncated, held(step.obs)
            mask = None if waiting is None else ~waiting
            given = {"obs": before, "action": done, "next_obs": now, **_flags_of(step), **extras}
            self.ids = self.buffer.add(**given, mask=mask, continues=self._continues)
            if self._lost is not None and (step.finals is None or step.known is not None):
                self._lost.note(_lost_of(step, mask))
        except BaseException:
            self.buffer.cut()
            if now is not None and ended is not None:
                self._go_on(now, ended)
            raise
        self._go_on(now, ended)
        return step.returned

    def _go_on(self, obs: Nest, ended: Tensor) -> None:
        self._obs, self._continues = obs, True
        if self.simulator.mode == "NEXT_STEP":
            self._waiting = ended
        elif self.simulator.mode == "DISABLED":
            self._waiting = ended if self._waiting is None else self._waiting | ended

    def _require(self, extras: dict[str, Any]) -> None:
        """Refuse a step before the first reset, and taken names; say what came to be known of the steps before."""
        if self._obs is None:
            wanted = "`reset` before the next `step`" if self._started else "`reset` before the first `step`"
            raise ArgumentError(message(wanted, "none", "Recorder.step", self._why_reset() if self._started else None))
        if not _OWN.isdisjoint(extras):
            name = min(_OWN & extras.keys())
            got = f"`{name}`, which comes from the environment"
            raise ArgumentError(message("further fields of the schema", got, f"$.{name}"))
        if self._lost is not None and self._lost.known():
            self._lost = None  # once
            sim = self.simulator
            expected = f"a final observation with every truncated step of {sim.name}"
            remedy = f"{sim.remedy}; without, such items are drawn with discount 0"
            warnings.warn(message(expected, "steps without", "Recorder.step", remedy), ReliveWarning, stacklevel=3)

    def _why_reset(self) -> str:
        if not self._started:
            return "call `reset` for all of them first"
        return "its last `reset` or `step` raised, so its state is unknown; call `reset` for all lanes"

    def _require_parts(self) -> None:
        """Refuse another device, and a schema that names what the environment's own spaces lack."""
        device = attribute(self.env, "device")
        if isinstance(device, str | torch.device) and not same_device(torch.device(device), self.simulator.device):
            wanted = f"a buffer on `{device}`, as the environment is"
            raise ArgumentError(message(wanted, f"`{self.simulator.device}`", "Recorder(buffer)"))
        # Wrappers that hide spaces may change observations: then the first observation is looked at alone.
        name = "single_observation_space"
        if not hasattr(self.env, name) and attribute(self.env, name) is not None:
            return
        for space, name in zip(self.simulator.spaces_of(self.env), ("obs", "action"), strict=True):
            if space is not None:
                same_parts(field_tree(space, f"$.{name}"), self.buffer.schema.tree[name], f"$.{name}")


def _flags_of(step: Step) -> dict[str, Any]:
    return {
        "reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "final_obs": step.finals,
        "final_mask": step.known,
    }


def _lost_of(step: Step, mask: Tensor | None) -> Tensor:
    """Mark the lanes whose truncated step has no final observation."""
    lost = step.truncated & ~step.terminated
    if step.known is not None:
        lost = lost & ~step.known
    return lost if mask is None else lost & mask
