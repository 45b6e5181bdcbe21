"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236) on relive's replay buffer, from top to bottom.

    y = r + discount * Q'(s', a')               a' = argmax Q(s', .), or argmax Q'(s', .) without double targets
    loss: mean of w * huber(Q(s, a) - y)        w = 1 under uniform replay
    Q' moves towards Q every `target_every` updates

`r`, `discount` and `s'` are the buffer's n-step ones. Prioritized replay also hands back |Q(s, a) - y|, the priority.
Stacked frames are stored once each. What all trainers share (the loop, evaluation, checkpoints) is in `_trainer.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.lab._dqn_config import DQNConfig
from relive.lab._trainer import EVAL_SEED, Trainer  # first: says what to install where PyTorch is missing

# isort: split
import torch
from torch import Tensor, nn

from relive.lab._env import Act, Discrete, MakeEnv, stacked
from relive.lab._nets import move_towards
from relive.lab._qnet import QNet, is_image


class DQNTrainer(Trainer[DQNConfig]):
    """Train a Q-net on any environment with discrete actions: vectors, images, Atari games.

    Args:
        config: All settings.
        make_env: Builds one environment, without stacked frames; None makes `config.env_id`, with the usual
            wrappers for an Atari game.
        evaluator: Replaces the evaluation that `config` describes: takes a policy (observations `[N, ...]` to actions
            `[N]`) and gives the returns of a fixed set of episodes, always as many.

    Attributes:
        config: The settings.
        buffer: The replay buffer.
        step: Environment steps done.
        updates: Gradient updates done.

    Raises:
        ArgumentError: Actions are not discrete, observations are not a numeric box, or the device is unknown.
        MissingExtra: PyTorch, Gymnasium, psutil or safetensors is not installed; for Atari games ale-py or OpenCV.

    >>> config = DQNConfig(env_id="CartPole-v1", total_steps=300, start_steps=200, batch_size=32, hidden_sizes=(32,),
    ...                    eval_every=300, eval_episodes=2, buffer_capacity=1_000, update_every=1, use_per=True)
    >>> result = DQNTrainer(config).train()
    >>> result.eval_returns.shape, result.updates
    ((1, 2), 100)
    """

    config_type = DQNConfig

    def _wrapped(self, make: MakeEnv) -> MakeEnv:
        return stacked(make, self.config.frame_stack) if self.config.frame_stack > 1 else make

    def _build_learner(self, envs: Any) -> None:
        c, source = self.config, self._source()
        self._spaces = s = Discrete(envs, "DQNTrainer")
        guess = is_image(s.obs_shape, s.obs_dtype, c.frame_stack)
        images = guess if c.net == "auto" else c.net == "convolution"

        def net() -> QNet:
            kind: dict[str, Any] = {"stack": c.frame_stack, "images": images, "dueling": c.dueling}
            made = QNet(s.obs_shape, s.obs_dtype, s.actions, hidden=c.hidden_sizes, generator=source, **kind)
            return made.to(self._device)

        self._net, self._target = net(), net()
        self._target.load_state_dict(self._net.state_dict())
        self._weights: list[Tensor] = list(self._net.parameters())
        self._target_weights: list[Tensor] = [weight.requires_grad_(False) for weight in self._target.parameters()]
        self._optimizer = torch.optim.Adam(self._weights, lr=c.learning_rate, fused=True)
        self._epsilon = relive.Anneal(c.epsilon_start, c.epsilon_end, over=c.epsilon_steps)
        self._seen: tuple[Tensor, Tensor] | None = None

    def _schema(self, envs: Any) -> relive.Schema:
        shape, dtype, k = self._spaces.obs_shape, self._spaces.obs_dtype, self.config.frame_stack
        # Gymnasium's wrapper repeats an episode's first frame, and so does the buffer.
        obs = relive.Field(shape[1:], dtype, stack=k, pad="first") if k > 1 else relive.Field(shape, dtype)
        return relive.Schema(obs=obs, action=relive.Field((), envs.single_action_space.dtype))

    # Acting -----------------------------------------------------------------------------------------------------------

    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        epsilon = 1.0 if self.step < self.config.start_steps else self._epsilon.at(self.step)
        following: npt.NDArray[Any] = self._do(self._spaces.to_env(self._choose(obs, epsilon, self._rng)))[0]
        return following

    def _choose(self, obs: npt.NDArray[Any], epsilon: float, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return indices of actions: the best ones, and in a share `epsilon` of the rows random ones."""
        explore = rng.random(len(obs)) < epsilon
        chosen = rng.integers(self._spaces.actions, size=len(obs))
        if not explore.all():
            chosen = np.where(explore, chosen, self._net.evaluate(obs).argmax(1))
        return chosen

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> npt.NDArray[Any]:
        """Choose actions.

        Args:
            obs: One observation, or a batch of them with a leading axis; with stacked frames if there are any.
            deterministic: Take the best action; otherwise a random one as often as training does by now.

        Returns:
            An action of the environment, with the leading axis if `obs` had one.

        Raises:
            ArgumentError: The observation has another shape.
        """
        rows, single = self._spaces.batch_of(obs)
        epsilon = 0.0 if deterministic else self._epsilon.at(self.step)
        action: npt.NDArray[Any] = self._spaces.to_env(self._choose(rows, epsilon, self._rng))
        return action[0] if single else action

    def _policy(self) -> Act:
        # A generator of its own: how often a learner is evaluated must not change what it learns.
        rng, epsilon = np.random.default_rng(EVAL_SEED), self.config.eval_epsilon
        return lambda obs: self._spaces.to_env(self._choose(self._spaces.batch_of(obs)[0], epsilon, rng))

    # Learning ---------------------------------------------------------------------------------------------------------

    def _update(self) -> None:
        c = self.config
        batch = self.buffer.sample(c.batch_size)
        t = batch.torch(None if self._device.type == "cpu" else self._device)
        target = self._targets(t.reward, t.discount, t.next_obs)
        value = self._net(t.obs).gather(1, t.action.long().sub(self._spaces.first).unsqueeze(1)).squeeze(1)
        loss = (t.weights * nn.functional.huber_loss(value, target, reduction="none")).mean()
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._weights, c.max_grad_norm)
        self._optimizer.step()
        self.updates += 1
        if self.updates % c.target_every == 0:
            move_towards(self._target_weights, self._weights, c.tau)
        if c.use_per:
            self.buffer.update_priorities(batch.ids, (value - target).detach().abs().cpu().numpy())
        self._seen = (loss.detach(), value.detach())

    @torch.no_grad()
    def _targets(self, reward: Tensor, discount: Tensor, next_obs: Tensor) -> Tensor:
        values = self._target(next_obs)
        best = (self._net(next_obs) if self.config.double else values).argmax(1, keepdim=True)
        target: Tensor = reward + discount * values.gather(1, best).squeeze(1)
        return target

    def _scalars(self) -> dict[str, float]:
        found = {"train/epsilon": self._epsilon.at(self.step)}
        if self._seen is not None:
            loss, values = self._seen
            found |= {"loss/q": float(loss), "train/mean_q": float(values.mean())}
        return found

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        return {"net": self._net, "target": self._target, "optimizer": self._optimizer}
