"""Recurrent Q-learning from replayed sequences (R2D2, Kapturowski et al. 2019) on relive's replay buffer.

    h_0        = the memory stored when the sequence's first step was acted, or zero
    Q_0 .. Q_T = net(observation, previous action and reward), read in order from h_0; the target net Q' likewise
    y_t        = r_t + discount_t * Q'_s(a')           s = t + steps_t, a' = argmax Q_s, or argmax Q'_s
    loss       : mean of w * (Q_t(a_t) - y_t)^2 / 2    over steps that exist, burn-in excluded; or Huber's

`r`, `discount` and `steps` are the buffer's n-step ones: where an episode ends or a stream is cut, the window is
shorter, and s is the position of the observation behind it. With `rescale`, y is h(r + discount * h^-1(Q')).
Prioritized replay also hands back eta * max + (1 - eta) * mean of |Q_t - y_t| over the sequence, its priority.

Settings, the net, and the agent with its update; what DQN has, too, is in `qlearning.py`, the loop in `run.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import SyncVectorEnv
from torch import Tensor, nn

import relive
from relive.errors import ArgumentError, message
from relive_lab.agent import Array, Choice, Random
from relive_lab.checks import Fields
from relive_lab.environments import Discrete, flat
from relive_lab.memory import Memory, Remembering
from relive_lab.nets import Floats, Perceptron, best_value, loss_of, step_clipped
from relive_lab.qlearning import QLearner, QLearningConfig, QTrainer

Ints = npt.NDArray[np.int64]

FORGET_BIAS = 1.0
RESCALE_EPS = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class R2D2Config(QLearningConfig):
    """Settings of recurrent Q-learning (Kapturowski et al. 2019, R2D2); errors are those of `TrainerConfig`.

    The defaults solve `relive/TMaze-v0` in a minute. A sequence drawn from the middle of an episode needs a memory to
    begin with: `state` and `burn_in` are the paper's two ways to give it one.

    >>> R2D2Config(length=80, burn_in=40, starts=40, n_step=5, gamma=0.997, rescale=True).state
    'stored'
    """

    state: Literal["stored", "zero"] = "stored"
    """Memory at a sequence's first step: as it was when the step was acted, or zero."""
    length: int = 8
    """Steps of a sequence that are learned from."""
    burn_in: int = 4
    """Steps in front of these that only refresh the memory; a sequence that begins an episode learns from them, too."""
    starts: int = 4
    """Every `starts`-th step of an environment is the first that some sequence learns from; memory is stored at these
    steps, and, if `burn_in` is no multiple, at those where burn-in begins."""
    priority_eta: float = 0.9
    """Share of the largest TD error in a sequence's priority; the rest is their mean."""
    lstm_size: int = 32
    """Cells of the LSTM."""
    hidden_sizes: tuple[int, ...] = ()
    """Widths of layers between observations and LSTM, if any."""
    critic_loss: Literal["mse", "huber"] = "mse"
    rescale: bool = False
    """Learn h(Q) with h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, for rewards of many sizes."""
    adam_eps: float = 1e-8
    """Adam's epsilon; 1e-3 in the paper."""
    explore_weights: tuple[float, ...] | None = None
    """How likely each action is among random ones, up to a factor; None: all alike."""

    env_id: str = "relive/TMaze-v0"
    num_envs: int = 10
    total_steps: int = 30_000
    gamma: float = 0.98
    per_beta_anneal_steps: int = 3_000
    buffer_capacity: int = 10_000
    batch_size: int = 32
    """Sequences per update."""
    learning_rate: float = 2e-3
    target_every: int = 100
    update_every: int = 10
    epsilon_steps: int = 7_500
    eval_episodes: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self)
        fields.integers("length", "starts", "lstm_size", minimum=1)
        fields.integers("burn_in", minimum=0)
        fields.numbers("priority_eta", low=0.0, high=1.0)
        fields.numbers("adam_eps", above=0.0)
        fields.flags("rescale")
        fields.choice("state", "stored", "zero")
        fields.widths("hidden_sizes", none_too=True)
        weights: Any = self.explore_weights
        if weights is None:
            return
        legal = isinstance(weights, tuple | list) and all(isinstance(w, int | float) for w in weights)
        if not legal or not all(0.0 <= w < math.inf for w in weights) or not any(weights):
            raise fields.refusal("explore_weights", "finite weights >= 0, not all of them 0")
        object.__setattr__(self, "explore_weights", tuple(float(w) for w in weights))


class RecurrentQNet(nn.Module):
    """Values of all actions after everything that was seen: [layers,] an LSTM, and a linear head, or two if dueling.

    What an agent remembers is one array `[..., 2, H]`: the LSTM's output and its cells. Initial weights are drawn by
    `generator` from U(-1/sqrt(in), 1/sqrt(in)), in the LSTM U(-1/sqrt(H), 1/sqrt(H)); the forget gates' biases are
    higher by 1. `hidden` has the widths of ReLU layers between observation and LSTM, `size` is H.

    Source: Hausknecht and Stone 2015, arXiv:1507.06527; inputs as in Kapturowski et al. 2019.
    """

    def __init__(
        self, obs_size: int, actions: int, hidden: tuple[int, ...], size: int, dueling: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.actions, self.size = actions, size
        self.encoder = Perceptron((obs_size, *hidden), 0, generator) if hidden else None
        features = hidden[-1] if hidden else obs_size
        # On no device at first: PyTorch's own initial values would come from its global generator.
        self.lstm: nn.LSTM = nn.LSTM(features + actions + 1, size, device="meta").to_empty(device="cpu")
        for weight in self.lstm.parameters():
            nn.init.uniform_(weight, -1.0 / math.sqrt(size), 1.0 / math.sqrt(size), generator=generator)
        with torch.no_grad():
            # Cells that keep what they hold from the first update on (Gers et al. 2000; Jozefowicz et al. 2015).
            self.lstm.get_parameter("bias_ih_l0")[size : 2 * size] += FORGET_BIAS
        self.advantage = Perceptron((size, actions), 0, generator)
        self.value = Perceptron((size, 1), 0, generator) if dueling else None
        self._arrays: tuple[Floats, ...] = ()

    def forward(self, obs: Tensor, action: Tensor, reward: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read sequences: values `[T, B, A]`, and the memory after the last observation.

        Args:
            obs: Observations, float32 `[T, B, D]`.
            action: Index of the action before each observation, int64 `[T, B]`.
            reward: Reward before each observation, float32 `[T, B]`.
            state: Memory before the first observation, float32 `[B, 2, H]`.
        """
        steps, rows = action.shape
        x = obs.reshape(steps * rows, -1)
        if self.encoder is not None:
            x = torch.relu(self.encoder(x))
        last = nn.functional.one_hot(action, self.actions).to(x.dtype).view(steps * rows, -1)
        x = torch.cat((x, last, reward.reshape(-1, 1)), 1).view(steps, rows, -1)
        h, c = (part.contiguous().unsqueeze(0) for part in state.unbind(1))
        y, (h, c) = self.lstm(x, (h, c))
        y = y.reshape(steps * rows, -1)
        values = self.advantage(y)
        if self.value is not None:
            values = self.value(y) + values - values.mean(1, keepdim=True)
        return values.view(steps, rows, -1), torch.stack((h[0], c[0]), 1)

    def step(self, obs: Floats, action: Ints, reward: Floats, state: Floats) -> tuple[Floats, Floats]:
        """Read one observation of each row without gradients: values `[N, A]`, and the memory after it.

        The arguments are those of `forward` without the time axis, as arrays. On the CPU this runs in NumPy on the
        weights' own memory: several times faster for a few rows.
        """
        device = self.advantage.weights[0].device
        if device.type != "cpu":
            with torch.no_grad():
                given = (torch.from_numpy(part).to(device)[None] for part in (obs, action, reward))
                values, memory = self(*given, torch.from_numpy(state).to(device))
            return values[0].cpu().numpy(), memory.cpu().numpy()
        if not self._arrays:
            self._arrays = tuple(weight.detach().numpy() for weight in self.lstm.parameters())
        from_input, from_output, *biases = self._arrays
        x = obs if self.encoder is None else np.maximum(self.encoder.evaluate(obs), 0.0)
        x = np.concatenate((x, np.eye(self.actions, dtype=np.float32)[action], reward[:, None]), 1)
        gates = x @ from_input.T + state[:, 0] @ from_output.T + (biases[0] + biases[1])
        take, keep, new, show = np.split(gates, 4, 1)
        cells = _sigmoid(keep) * state[:, 1] + _sigmoid(take) * np.tanh(new)
        y = _sigmoid(show) * np.tanh(cells)
        out = self.advantage.evaluate(y)
        if self.value is not None:
            out = self.value.evaluate(y) + out - out.mean(1, keepdims=True)
        return out, np.stack((y, cells), 1)


def _sigmoid(x: Floats) -> Floats:
    # By way of tanh, which cannot overflow.
    half: Floats = 0.5 * np.tanh(0.5 * x) + np.float32(0.5)
    return half


def _moved(values: Tensor, by: Tensor) -> Tensor:
    """Shift each column of values `[T, B, ...]` by `by` `[B]` positions; its last one, or first, repeats."""
    at = torch.arange(len(values), device=by.device).unsqueeze(1).add(by).clamp(0, len(values) - 1)
    return values.gather(0, at.view(*at.shape, *[1] * (values.ndim - 2)).expand_as(values))


class R2D2(QLearner[RecurrentQNet]):
    """The agent: how it acts, and one update. Attributes are those of `Agent`, and the nets."""

    def __init__(self, config: R2D2Config, envs: SyncVectorEnv) -> None:
        self.config, self.random = config, Random(config)
        self.spaces = s = Discrete(envs, "R2D2Trainer")
        c, source = config, self.random.initial()
        if c.explore_weights is not None and len(c.explore_weights) != s.actions:
            got = f"{len(c.explore_weights)} of them"
            raise ArgumentError(message(f"{s.actions} weights, one per action", got, "R2D2Config(explore_weights)"))
        weights = np.asarray(c.explore_weights or np.ones(s.actions))
        self._exploring = weights / weights.sum()
        # The buffer gives 0 as the action before an episode's first one; where actions do not begin there, the nearest.
        self._blank = min(max(-s.first, 0), s.actions - 1)
        every = math.gcd(c.starts, c.burn_in)
        kept: dict[str, Any] = {"first": relive.Field((), "bool", every=every)}
        if c.state == "stored":
            kept["state"] = relive.Field((2, c.lstm_size), every=every)
        self.schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space, **kept)
        parts: dict[str, Any] = {"burn_in": c.burn_in, "n_step": c.n_step, "gamma": c.gamma, "starts": c.starts}
        self.item = relive.Sequences(c.length, time_major=True, **parts)
        sizes = (s.obs_size, s.actions, c.hidden_sizes, c.lstm_size, c.dueling)
        super().__init__(c, self.random, lambda: RecurrentQNet(*sizes, source), 1.0, c.adam_eps)

    # Acting -----------------------------------------------------------------------------------------------------------

    def memory(self, num_envs: int) -> Memory:
        """Return what is remembered at the first step of an episode."""
        return Memory(num_envs, self.config.lstm_size, self._blank)

    def explore(self, obs: Array, step: int, memory: Memory) -> Choice:
        """Choose actions `[N]`; their step stores what was remembered before it."""
        extras = {"first": memory.first} | ({"state": memory.state} if self.config.state == "stored" else {})
        return Choice(self.choose(obs, self.epsilon_at(step), memory), extras)

    def choose(self, obs: Array, epsilon: float, memory: Memory) -> Array:
        """Return actions, the best or in a share `epsilon` random ones; `memory` moves on, whichever they are."""
        values, memory.state = self.net.step(flat(obs), memory.action, memory.reward, memory.state)
        memory.action = values.argmax(1)
        if epsilon > 0.0:
            explore = self.random.rng.random(len(obs)) < epsilon
            drawn = self.random.rng.choice(len(self._exploring), len(obs), p=self._exploring)
            memory.action = np.where(explore, drawn, memory.action)
        return self.spaces.to_env(memory.action)

    def policy(self) -> Remembering:
        """Return the deterministic policy, with a memory of its own."""
        return Remembering(self.memory, functools.partial(self.choose, epsilon=0.0))

    # Learning ---------------------------------------------------------------------------------------------------------

    def update(self, t: Any) -> npt.NDArray[np.float64]:
        """Learn from a batch of tensors, and return new priorities `[B]`."""
        loss, errors, learns = self.losses(t)
        step_clipped(self._optimizer, self._weights, loss, self.config.max_grad_norm)
        self.seen = {"loss/q": loss.detach(), "train/td_error": errors.abs()}
        return self._priority(errors, learns)

    def losses(self, t: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, TD errors `[T, B]`, and which of them are learned from `[T, B]`."""
        c, device = self.config, self.random.device
        steps, rows = t.mask.shape
        time = torch.arange(steps, device=device).unsqueeze(1)
        # A sequence that begins an episode needs no burn-in: its state is exactly zero. It is one where positions in
        # front are padding; else `first` is kept at its first step.
        lead = (~t.mask).long().cumprod(0).sum(0)
        first = t.first | (lead > 0)
        learns = t.mask & ((time >= c.burn_in) | first)
        state = t.state if c.state == "stored" else torch.zeros((rows, 2, c.lstm_size), device=device)
        last = t.all_prev_action.long().sub(self.spaces.first).clamp(0, self.spaces.actions - 1)
        # Padding would change the memory before the first step.
        inputs = [_moved(part, lead) for part in (t.all_obs.reshape(*last.shape, -1).float(), last, t.all_prev_reward)]
        values = _moved(self._unroll(inputs, state, first), -lead)
        with torch.no_grad():
            others = _moved(self.target(*inputs, state)[0], -lead)
            target = self.targets(values, others, time + t.steps, t.reward, t.discount)
        action = t.action.long().sub(self.spaces.first).clamp(0, self.spaces.actions - 1)
        errors = values[:steps].gather(2, action.unsqueeze(2)).squeeze(2) - target
        count = learns.sum().clamp(min=1)
        each = loss_of(errors, c.critic_loss, c.huber_threshold)
        loss = (0.5 * t.weights * each * learns).sum() / count
        return loss, errors.detach(), learns

    def _unroll(self, inputs: Sequence[Tensor], state: Tensor, first: Tensor) -> Tensor:
        """Return values `[T + n, B, A]`; no gradient flows through burn-in, except where an episode begins."""
        burn_in = self.config.burn_in
        if not burn_in:
            values: Tensor = self.net(*inputs, state)[0]
            return values
        with torch.set_grad_enabled(bool(first.any())):
            early, state = self.net(*(part[:burn_in] for part in inputs), state)
        state = torch.where(first[:, None, None], state, state.detach())
        late, _ = self.net(*(part[burn_in:] for part in inputs), state)
        return torch.cat((early, late))

    def targets(self, values: Tensor, others: Tensor, after: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Return y `[T, B]`, bootstrapped at the positions `after`, from the values of net and target net."""
        at = after.unsqueeze(2).expand(*after.shape, values.shape[2])
        following = others.gather(0, at)
        value = best_value(following, values.gather(0, at) if self.config.double else following)
        if not self.config.rescale:
            return reward + discount * value
        return rescaled(reward + discount * original(value))

    def _priority(self, errors: Tensor, learns: Tensor) -> npt.NDArray[np.float64]:
        arrays, eta = (errors.cpu().numpy(), learns.cpu().numpy()), self.config.priority_eta
        return relive.sequence_priority(*arrays, eta, time_major=True)

    @torch.no_grad()
    def td_error(self, batch: relive.Batch) -> npt.NDArray[np.float64]:
        """Return the TD errors of a batch of the buffer's, one for each sequence as its priority has it, float64 `[B]`.

        >>> trainer = R2D2Trainer(R2D2Config(total_steps=400, start_steps=200, eval_every=0))
        >>> result = trainer.train()
        >>> trainer.td_error(trainer.buffer.sample(3)).shape
        (3,)
        """
        return self._priority(*self.losses(self.random.tensors(batch))[1:])

    errors = td_error


def rescaled(x: Tensor) -> Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al. 2018, arXiv:1805.11593)."""
    y: Tensor = x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + RESCALE_EPS * x
    return y


def original(y: Tensor) -> Tensor:
    """Return the x whose h(x) is y."""
    root = (1.0 + 4.0 * RESCALE_EPS * (y.abs() + 1.0 + RESCALE_EPS)).sqrt()
    x: Tensor = y.sign() * (((root - 1.0) / (2.0 * RESCALE_EPS)).square() - 1.0)
    return x


class R2D2Trainer(QTrainer[R2D2Config, R2D2]):
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

    agent: R2D2
    _name, _settings, _kind = "R2D2Trainer", R2D2Config, R2D2

    def memory(self, num_envs: int = 1) -> Memory:
        """Return what agents in `num_envs` environments remember at the first step of their episodes, for `act`."""
        return self.agent.memory(num_envs)

    def act(self, obs: npt.ArrayLike, deterministic: bool = True, *, memory: Memory | None = None) -> Array:
        """Choose actions, as `SAC.act` does; without `deterministic`, random ones as often as in training.

        `memory` is the agent's state, from `memory()`. It is updated; call `memory.after(reward, ended)` after the
        step. None stands for an episode's first step. A memory for another number of environments is an ArgumentError.

        >>> trainer = R2D2Trainer(R2D2Config())
        >>> memory, obs = trainer.memory(), np.float32([1.0, 1.0, 0.0, 1.0])
        >>> action = trainer.act(obs, memory=memory)
        >>> memory.after(reward=0.0, ended=False)
        """
        agent = self.agent
        rows, single = agent.spaces.batch_of(obs)
        used = self.memory(len(rows)) if memory is None else memory
        if len(used.action) != len(rows):
            got, at = f"{len(rows)} observations", "R2D2Trainer.act(memory)"
            raise ArgumentError(message(f"{len(used.action)} observations, one for each that remembers", got, at))
        action = agent.choose(rows, 0.0 if deterministic else agent.epsilon.at(self.step), used)
        return action[0] if single else action
