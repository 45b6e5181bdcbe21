"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236) on relive's replay buffer, from top to bottom.

    y = r + discount * Q'(s', a')               a' = argmax Q(s', .), or argmax Q'(s', .) without double targets
    loss: mean of w * huber(Q(s, a) - y)        w = 1 under uniform replay; half of the square with critic_loss="mse"
    Q' moves towards Q every `target_every` updates

`r`, `discount` and `s'` are the buffer's n-step ones. Prioritized replay also hands back |Q(s, a) - y|, the priority.
Stacked frames are stored once each. The loop, evaluation and checkpoints are in `_trainer.py`, what R2D2 shares is in
`_qlearning.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.lab._config import DQNConfig
from relive.lab._qlearning import QTrainer, best_value  # first: says what to install where PyTorch is missing
from relive.lab._trainer import EVAL_SEED

# isort: split
import torch
from torch import Tensor

from relive.lab._env import Act, Discrete, MakeEnv, stacked
from relive.lab._nets import loss_of
from relive.lab._qnet import QNet, is_image


class DQNTrainer(QTrainer[DQNConfig, QNet]):
    """Train a Q-net on any environment with discrete actions: vectors, images, Atari games.

    Arguments, attributes and errors are those of `SACTrainer`. `make_env` builds an environment without stacked frames;
    by default Atari games get the usual wrappers, which need ale-py and OpenCV.

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
            return QNet(s.obs_shape, s.obs_dtype, s.actions, hidden=c.hidden_sizes, generator=source, **kind)

        self._build_nets(net)

    def _schema(self, envs: Any) -> relive.Schema:
        shape, dtype, k = self._spaces.obs_shape, self._spaces.obs_dtype, self.config.frame_stack
        # Gymnasium's wrapper repeats an episode's first frame, and so does the buffer.
        obs = relive.Field(shape[1:], dtype, stack=k, pad="first") if k > 1 else relive.Field(shape, dtype)
        return relive.Schema(obs=obs, action=relive.Field((), envs.single_action_space.dtype))

    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self._do(self._spaces.to_env(self._choose(obs, self._exploration(), self._rng)))[0]

    def _choose(self, obs: npt.NDArray[Any], epsilon: float, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return indices of actions: the best ones, and in a share `epsilon` of the rows random ones."""
        explore = rng.random(len(obs)) < epsilon
        chosen = rng.integers(self._spaces.actions, size=len(obs))
        if not explore.all():
            chosen = np.where(explore, chosen, self._net.evaluate(obs).argmax(1))
        return chosen

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> npt.NDArray[Any]:
        """Choose actions, as `SACTrainer.act` does; without `deterministic`, random ones as often as in training.

        With `frame_stack`, `obs` is stacked.
        """
        rows, single = self._spaces.batch_of(obs)
        epsilon = 0.0 if deterministic else self._epsilon.at(self.step)
        action: npt.NDArray[Any] = self._spaces.to_env(self._choose(rows, epsilon, self._rng))
        return action[0] if single else action

    def _policy(self) -> Act:
        # A generator of its own: how often a learner is evaluated must not change what it learns.
        rng, epsilon = np.random.default_rng(EVAL_SEED), self.config.eval_epsilon
        return lambda obs: self._spaces.to_env(self._choose(self._spaces.batch_of(obs)[0], epsilon, rng))

    def _learn(self, t: Any) -> Tensor:
        c, (value, error) = self.config, self._judge(t)
        loss = (t.weights * (0.5 * loss_of(error, c.critic_loss, c.huber_threshold))).mean()
        self._descend(loss, c.tau)
        self._seen = {"loss/q": loss.detach(), "train/mean_q": value.detach()}
        size: Tensor = error.detach().abs()
        return size

    def _judge(self, t: Any) -> tuple[Tensor, Tensor]:
        """Return values of the actions that were taken, and their TD errors, both `[B]`."""
        value = self._net(t.obs).gather(1, t.action.long().sub(self._spaces.first).unsqueeze(1)).squeeze(1)
        return value, value - self._targets(t.reward, t.discount, t.next_obs)

    def _judgement(self) -> Callable[[relive.Batch], npt.NDArray[Any]] | None:
        return self.td_error

    @torch.no_grad()
    def td_error(self, batch: Any) -> npt.NDArray[np.float32]:
        """Return the TD errors of a batch of the buffer's, float32 `[B]`.

        >>> trainer = DQNTrainer(DQNConfig(total_steps=50, start_steps=20, batch_size=8, eval_every=0))
        >>> result = trainer.train()
        >>> trainer.td_error(trainer.buffer.sample(3)).shape
        (3,)
        """
        t = batch.torch(None if self._device.type == "cpu" else self._device)
        error: npt.NDArray[np.float32] = self._judge(t)[1].cpu().numpy()
        return error

    @torch.no_grad()
    def _targets(self, reward: Tensor, discount: Tensor, next_obs: Tensor) -> Tensor:
        values = self._target(next_obs)
        target: Tensor = reward + discount * best_value(values, self._net(next_obs) if self.config.double else values)
        return target
