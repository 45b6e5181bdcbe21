"""Simulators whose step looks like Gymnasium's: where each puts what is its own."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import ArgumentError, message
from ._tensors import Nest, scattered
from .simulator import Simulator, Step, attribute, chain, keyed, of_class


class IsaacLab(Simulator):
    """Isaac Lab's `ManagerBasedRLEnv` and `DirectRLEnv`, bare or in Gymnasium's wrappers.

    They reset in the same step unless their configuration says otherwise. `extras["final_obs"]` has the observation of
    every lane before resets, at steps at which an episode ended, if `compute_final_obs` is on. In tasks of finite
    horizon (`is_finite_horizon`) the time limit is an end like others: nothing is bootstrapped there.
    """

    name: ClassVar[str] = "Isaac Lab"
    remedy: ClassVar[str] = "set `compute_final_obs=True` in the environment's configuration"
    classes: ClassVar[tuple[str, ...]] = ("ManagerBasedRLEnv", "DirectRLEnv")

    @classmethod
    def fits(cls, env: Any) -> bool:
        """Return True if `env` is of this kind."""
        if of_class(env, "DirectMARLEnv", "ManagerBasedMARLEnv") is not None:
            got = f"`{type(env).__name__}`, whose observations and rewards are those of several agents"
            raise ArgumentError(message("an environment of one agent", got, "Recorder(env)"))
        return of_class(env, *cls.classes) is not None

    def config(self, name: str) -> Any:
        """Return an entry of the environment's configuration, or None if it has none of that name."""
        return getattr(attribute(self.env, "cfg"), name, None)

    def mode_of_env(self) -> object:
        """Return the autoreset mode that the environment names, or SAME_STEP, which older releases do not name."""
        return self.config("autoreset_mode") or super().mode_of_env() or "SAME_STEP"

    @property
    def gives_finals(self) -> bool:
        """True if `compute_final_obs` is on."""
        return super().gives_finals or self.config("compute_final_obs") is True

    def lanes_reset(self, choices: dict[str, Any]) -> Any:
        """Return the lanes `env_ids` of a reset."""
        return choices.get("env_ids")

    def parsed(self, obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any, returned: Any) -> Step:
        """Parse a step from these parts, with its final observations."""
        step = super().parsed(obs, reward, terminated, truncated, infos, returned)
        if self.config("is_finite_horizon") is not True:
            return step
        ended = step.terminated | step.truncated
        return step._replace(terminated=ended, truncated=torch.zeros_like(ended))


class MjLab(IsaacLab):
    """mjlab's `ManagerBasedRlEnv`: Isaac Lab's interface.

    `extras["terminal"]` has the final observations of the lanes in its `env_ids` alone, if
    `capture_terminal_observations` is on. With `auto_reset=False` the caller resets.
    """

    name: ClassVar[str] = "mjlab"
    remedy: ClassVar[str] = (
        "set `capture_terminal_observations=True` in the environment's configuration if the release has it, else "
        "`auto_reset=False`, and call `Recorder.reset(env_ids=...)` for lanes that ended"
    )
    classes: ClassVar[tuple[str, ...]] = ("ManagerBasedRlEnv",)

    def mode_of_env(self) -> object:
        """Return the autoreset mode: DISABLED with `auto_reset=False`."""
        return "DISABLED" if self.config("auto_reset") is False else "SAME_STEP"

    @property
    def gives_finals(self) -> bool:
        """True if `capture_terminal_observations` is on."""
        return self.mode != "SAME_STEP" or self.config("capture_terminal_observations") is True

    def finals_of(self, infos: Any, obs: Nest) -> tuple[Any, Tensor | None] | None:
        """Return the final observations, in the rows of their lanes."""
        found = infos.get("terminal")
        if found is None:
            return None
        ids = found["env_ids"].long()
        known = torch.zeros(self.lanes, dtype=torch.bool, device=self.device).index_fill_(0, ids, True)
        return scattered(found["observations"], ids, obs), known


class ManiSkill(Simulator):
    """ManiSkill's `ManiSkillVectorEnv`, and its environments without it.

    The wrapper resets in the same step and gives `infos["final_observation"]`, of all lanes, at steps at which an
    episode ended. With `auto_reset=False`, and without the wrapper, the caller resets.
    """

    name: ClassVar[str] = "ManiSkill"

    @classmethod
    def fits(cls, env: Any) -> bool:
        """Return True if `env` is of this kind."""
        bare = any(base.__module__.startswith("mani_skill.") for each in chain(env) for base in type(each).__mro__)
        return bare or of_class(env, "ManiSkillVectorEnv") is not None

    def mode_of_env(self) -> object:
        """Return the autoreset mode: DISABLED for a bare environment, and with `auto_reset=False`."""
        return "SAME_STEP" if attribute(self.env, "auto_reset") else "DISABLED"

    @property
    def gives_finals(self) -> bool:
        """Always."""
        return True

    def lanes_reset(self, choices: dict[str, Any]) -> Any:
        """Return the lanes `options["env_idx"]` of a reset."""
        return (choices.get("options") or {}).get("env_idx")

    def finals_of(self, infos: Any, obs: Nest) -> tuple[Any, Tensor | None] | None:
        """Return the final observations of a step, and the lanes that ended."""
        return keyed(infos, "final_observation", self.lanes, self.device)
