"""The environments of a run as a simulator on a GPU has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive._base.extras import needs

from ._pipeline import MakeEnv

if TYPE_CHECKING:
    from torch import Tensor, device


class TensorEnvs:
    """All environments of a run in one call, in tensors; lanes start anew within `step`.

    What `step` returns for a lane whose episode ends is the first observation of the lane's next episode, as simulators
    do it; the last one of the old episode is in `extras["final_obs"]`. Lanes end at different times.

    Args:
        make_env: What the doctor gives to `run`.
        num_envs: The number of lanes.
        device: Where the tensors are.

    Raises:
        MissingExtra: PyTorch is not installed.

    A pipeline for a buffer of tensors, which takes the observations for what they are not:

    >>> import torch
    >>> from relive.doctor import Item, TensorEnvs, examine
    >>> class Mine:
    ...     modes, lanes = ("same_step",), 4
    ...     def run(self, make_env, num_envs, calls, n_step, gamma, *, autoreset_mode):
    ...         envs = TensorEnvs(make_env, num_envs, device="cpu")
    ...         obs, self.stored = envs.reset(), []
    ...         for _ in range(calls):
    ...             next_obs, reward, terminated, truncated, extras = envs.step()
    ...             self.stored.append((obs, reward, gamma * ~terminated, next_obs))
    ...             obs = next_obs
    ...     def items(self):
    ...         return Item(*(torch.cat(column) for column in zip(*self.stored)))
    >>> [(finding.probe, finding.wrong) for finding in examine(Mine(), n_steps=1).findings]
    [('wrong next_obs bootstrapped', 52)]
    """

    def __init__(self, make_env: MakeEnv, num_envs: int, device: str | device = "cpu") -> None:
        with needs("torch", "relive.doctor.TensorEnvs"):
            import torch
        self._torch, self._device = torch, device
        self._envs = [make_env() for _ in range(num_envs)]

    def reset(self) -> Tensor:
        """Begin the next episode of every lane; return its first observations, float32 `[L, 1]`."""
        return self._column([env.reset()[0] for env in self._envs])

    def step(self, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Take a step in every lane; the actions do not matter.

        Args:
            action: `[L, ...]`, or None.

        Returns:
            Observations float32 `[L, 1]`, rewards float32 `[L]`, terminated and truncated, bool `[L]`, and
            `{"final_obs": float32 [L, 1]}`: the last observation of the episode where one ended, else the observation.
        """
        del action
        taken = [env.step(0) for env in self._envs]
        obs, reward, terminated, truncated, _ = (list(values) for values in zip(*taken, strict=True))
        first = [
            env.reset()[0] if ended[2] or ended[3] else ended[0] for env, ended in zip(self._envs, taken, strict=True)
        ]
        extras = {"final_obs": self._column(obs)}
        return self._column(first), self._tensor(reward), self._tensor(terminated), self._tensor(truncated), extras

    def _column(self, observations: list[Any]) -> Tensor:
        return self._tensor([float(obs[0]) for obs in observations])[:, None]

    def _tensor(self, values: list[Any]) -> Tensor:
        return self._torch.tensor(values, device=self._device)
