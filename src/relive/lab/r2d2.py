"""Recurrent Q-learning from replayed sequences (R2D2, Kapturowski et al. 2019) on relive's replay buffer.

    h_0        = the memory stored when the sequence's first step was acted, or zero
    Q_0 .. Q_T = net(observation, previous action and reward), read in order from h_0; the target net Q' likewise
    y_t        = r_t + discount_t * Q'_s(a')           s = t + steps_t, a' = argmax Q_s, or argmax Q'_s
    loss       : mean of w * (Q_t(a_t) - y_t)^2 / 2    over steps that exist, burn-in excluded; or Huber's

`r`, `discount` and `steps` are the buffer's n-step ones: where an episode ends or a stream is cut, the window is
shorter, and s is the position of the observation behind it. With `rescale`, y is h(r + discount * h^-1(Q')).
Prioritized replay also hands back eta * max + (1 - eta) * mean of |Q_t - y_t| over the sequence, its priority.

The loop, evaluation and checkpoints are in `_trainer.py`, what DQN shares in `_qlearning.py`, the net in
`_recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.errors import ArgumentError, message
from relive.lab._config import R2D2Config
from relive.lab._qlearning import QTrainer, best_value  # first: says what to install where PyTorch is missing

# isort: split
import torch
from torch import Tensor

from relive.lab._env import Discrete, flat
from relive.lab._nets import loss_of
from relive.lab._recurrent import Memory, RecurrentQNet

RESCALE_EPS = 1e-3


class R2D2Trainer(QTrainer[R2D2Config, RecurrentQNet]):
    """Train an LSTM Q-net on any environment with discrete actions and vector observations.

    Arguments, attributes and errors are those of `SACTrainer`. An `evaluator` calls the policy for the same
    environments every time, and `policy.after(reward, ended)` after each step.

    >>> config = R2D2Config(env_id="relive/TMaze-v0", total_steps=400, start_steps=200, eval_every=400, eval_episodes=2)
    >>> trainer = R2D2Trainer(config)
    >>> result = trainer.train()
    >>> result.eval_returns.shape, result.updates
    ((1, 2), 20)
    >>> trainer.buffer.sample(2).state.shape
    (2, 2, 32)
    """

    config_type = R2D2Config

    def _build_learner(self, envs: Any) -> None:
        c, source = self.config, self._source()
        self._spaces = s = Discrete(envs, "R2D2Trainer")
        if c.explore_weights is not None and len(c.explore_weights) != s.actions:
            got = f"{len(c.explore_weights)} of them"
            raise ArgumentError(message(f"{s.actions} weights, one per action", got, "R2D2Config(explore_weights)"))
        weights = np.asarray(c.explore_weights or np.ones(s.actions))
        self._random = weights / weights.sum()
        # The buffer gives 0 as the action before an episode's first one; where actions do not begin there, the nearest.
        self._blank = min(max(-s.first, 0), s.actions - 1)

        def net() -> RecurrentQNet:
            return RecurrentQNet(s.obs_size, s.actions, c.hidden_sizes, c.lstm_size, c.dueling, source)

        self._build_nets(net, eps=c.adam_eps)

    def _schema(self, envs: Any) -> relive.Schema:
        c = self.config
        kept: dict[str, Any] = {"first": relive.Field((), "bool", every=c.starts)}
        if c.state == "stored":
            kept["state"] = relive.Field((2, c.lstm_size), every=c.starts)
        return relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space, **kept)

    def _item(self) -> Any:
        c = self.config
        parts: dict[str, Any] = {"burn_in": c.burn_in, "n_step": c.n_step, "gamma": c.gamma, "starts": c.starts}
        return relive.Sequences(c.length, time_major=True, **parts)

    def _begin(self) -> None:
        self._memory = self.memory(self.config.num_envs)

    def _carried(self) -> dict[str, npt.NDArray[Any]]:
        memory = self._memory
        return {"state": memory.state, "action": memory.action, "reward": memory.reward, "first": memory.first}

    def _carry(self, carried: dict[str, npt.NDArray[Any]]) -> None:
        self._begin()
        for name, before in self._carried().items():
            if (carried[name].shape, carried[name].dtype) != (before.shape, before.dtype):
                raise ValueError(f"a memory of another size, `{name}`")
            setattr(self._memory, name, carried[name])

    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        memory = self._memory
        before = {"first": memory.first} | ({"state": memory.state} if self.config.state == "stored" else {})
        action = self._choose(obs, self._exploration(), memory)
        following, reward, ended = self._do(action, **before)
        memory.after(reward, ended)
        return following

    def _choose(self, obs: npt.NDArray[Any], epsilon: float, memory: Memory) -> npt.NDArray[Any]:
        """Return the environment's actions, and move `memory` on, whether actions are random or not."""
        values, memory.state = self._net.step(flat(obs), memory.action, memory.reward, memory.state)
        memory.action = values.argmax(1)
        if epsilon > 0.0:
            explore = self._rng.random(len(obs)) < epsilon
            drawn = self._rng.choice(len(self._random), len(obs), p=self._random)
            memory.action = np.where(explore, drawn, memory.action)
        return self._spaces.to_env(memory.action)

    def memory(self, num_envs: int = 1) -> Memory:
        """Return what agents in `num_envs` environments remember at the first step of their episodes, for `act`."""
        return Memory(num_envs, self.config.lstm_size, self._blank)

    def act(self, obs: npt.ArrayLike, deterministic: bool = True, *, memory: Memory | None = None) -> npt.NDArray[Any]:
        """Choose actions, as `SACTrainer.act` does; without `deterministic`, random ones as often as in training.

        `memory` is the agent's state, from `memory()`. It is updated; call `memory.after(reward, ended)` after the
        step. None stands for an episode's first step. A memory for another number of environments is an ArgumentError.

        >>> trainer = R2D2Trainer(R2D2Config())
        >>> memory, obs = trainer.memory(), np.float32([1.0, 1.0, 0.0, 1.0])
        >>> action = trainer.act(obs, memory=memory)
        >>> memory.after(reward=0.0, ended=False)
        """
        rows, single = self._spaces.batch_of(obs)
        used = self.memory(len(rows)) if memory is None else memory
        if len(used.action) != len(rows):
            got, at = f"{len(rows)} observations", "R2D2Trainer.act(memory)"
            raise ArgumentError(message(f"{len(used.action)} observations, one for each that remembers", got, at))
        action = self._choose(rows, 0.0 if deterministic else self._epsilon.at(self.step), used)
        return action[0] if single else action

    def _policy(self) -> Remembering:
        return Remembering(self)

    def _learn(self, t: Any) -> Tensor:
        loss, errors, learns = self._losses(t)
        self._descend(loss)
        self._seen = {"loss/q": loss.detach(), "train/td_error": errors.abs()}
        return torch.from_numpy(self._priority(errors, learns)) if self.config.use_per else errors

    def _priority(self, errors: Tensor, learns: Tensor) -> npt.NDArray[np.float64]:
        arrays, eta = (errors.cpu().numpy(), learns.cpu().numpy()), self.config.priority_eta
        return relive.sequence_priority(*arrays, eta, time_major=True)

    def _judgement(self) -> Callable[[relive.Batch], npt.NDArray[Any]] | None:
        return self.td_error

    def td_error(self, batch: Any) -> npt.NDArray[np.float64]:
        """Return the TD errors of a batch of the buffer's, one for each sequence as its priority has it, float64 `[B]`.

        >>> trainer = R2D2Trainer(R2D2Config(total_steps=400, start_steps=200, eval_every=0))
        >>> result = trainer.train()
        >>> trainer.td_error(trainer.buffer.sample(3)).shape
        (3,)
        """
        t = batch.torch(None if self._device.type == "cpu" else self._device)
        with torch.no_grad():
            return self._priority(*self._losses(t)[1:])

    def _losses(self, t: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, TD errors `[T, B]`, and which of them are learned from `[T, B]`."""
        c = self.config
        steps, rows = t.mask.shape
        time = torch.arange(steps, device=self._device).unsqueeze(1)
        # A sequence that begins an episode needs no burn-in: its state is exactly zero.
        learns = t.mask & ((time >= c.burn_in) | t.first)
        state = t.state if c.state == "stored" else torch.zeros((rows, 2, c.lstm_size), device=self._device)
        last = t.all_prev_action.long().sub(self._spaces.first).clamp(0, self._spaces.actions - 1)
        inputs = (t.all_obs.reshape(*last.shape, -1).float(), last, t.all_prev_reward)
        values = self._unroll(inputs, state, t.first)
        with torch.no_grad():
            target = self._targets(values, self._target(*inputs, state)[0], time + t.steps, t.reward, t.discount)
        action = t.action.long().sub(self._spaces.first).clamp(0, self._spaces.actions - 1)
        errors = values[:steps].gather(2, action.unsqueeze(2)).squeeze(2) - target
        count = learns.sum().clamp(min=1)
        each = loss_of(errors, c.critic_loss, c.huber_threshold)
        loss = (0.5 * t.weights * each * learns).sum() / count
        return loss, errors.detach(), learns

    def _unroll(self, inputs: tuple[Tensor, ...], state: Tensor, first: Tensor) -> Tensor:
        """Return values `[T + n, B, A]`; no gradient flows through burn-in, except where an episode begins."""
        burn_in = self.config.burn_in
        if not burn_in:
            values: Tensor = self._net(*inputs, state)[0]
            return values
        with torch.set_grad_enabled(bool(first.any())):
            early, state = self._net(*(part[:burn_in] for part in inputs), state)
        state = torch.where(first[:, None, None], state, state.detach())
        late, _ = self._net(*(part[burn_in:] for part in inputs), state)
        return torch.cat((early, late))

    def _targets(self, values: Tensor, others: Tensor, after: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Return what the values of the actions taken should be, `[T, B]`, bootstrapped at the positions `after`."""
        at = after.unsqueeze(2).expand(*after.shape, values.shape[2])
        following = others.gather(0, at)
        value = best_value(following, values.gather(0, at) if self.config.double else following)
        if not self.config.rescale:
            return reward + discount * value
        return rescaled(reward + discount * original(value))


class Remembering:
    """A trainer's deterministic policy with a memory of its own, for whole episodes in the same environments."""

    def __init__(self, trainer: R2D2Trainer) -> None:
        self._trainer = trainer
        self._memory: Memory | None = None

    def __call__(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Choose actions `[N]` for observations `[N, ...]`."""
        if self._memory is None:
            self._memory = self._trainer.memory(len(obs))
        return self._trainer.act(obs, memory=self._memory)

    def after(self, reward: npt.ArrayLike, ended: npt.ArrayLike) -> None:
        """Take in what the actions led to; a new episode is met without a memory."""
        if self._memory is not None:
            self._memory.after(reward, ended)


def rescaled(x: Tensor) -> Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al. 2018, arXiv:1805.11593)."""
    y: Tensor = x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + RESCALE_EPS * x
    return y


def original(y: Tensor) -> Tensor:
    """Return the x whose h(x) is y."""
    root = (1.0 + 4.0 * RESCALE_EPS * (y.abs() + 1.0 + RESCALE_EPS)).sqrt()
    x: Tensor = y.sign() * (((root - 1.0) / (2.0 * RESCALE_EPS)).square() - 1.0)
    return x
