"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236) on relive's replay buffer, from top to bottom.

    y = r + discount * Q'(s', a')               a' = argmax Q(s', .), or argmax Q'(s', .) without double targets
    loss: mean of w * huber(Q(s, a) - y)        w = 1 under uniform replay; half of the square with critic_loss="mse"
    Q' moves towards Q every `target_every` updates

`r`, `discount` and `s'` are the buffer's n-step ones. Prioritized replay also hands back |Q(s, a) - y|, the priority.
Stacked frames are stored once each.

Settings, the net, and the agent with its update; what R2D2 has, too, is in `qlearning.py`, the loop in `run.py`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import SyncVectorEnv
from torch import Tensor, nn

import relive
from relive_lab.agent import Act, Array, Choice, Random
from relive_lab.checks import Fields
from relive_lab.config import MakeEnv
from relive_lab.environments import Discrete, stacked
from relive_lab.evaluation import SEED
from relive_lab.nets import Floats, Perceptron, best_value, loss_of, step_clipped
from relive_lab.qlearning import QLearner, QLearningConfig, QTrainer

# Where Atari wants other settings than a task of minutes: those of the literature, with a buffer of 0.7 GB.
ATARI: dict[str, Any] = {
    "total_steps": 1_000_000,
    "frame_stack": 4,
    "buffer_capacity": 100_000,
    "batch_size": 32,
    "learning_rate": 1e-4,
    "target_every": 250,
    "tau": 1.0,
    "start_steps": 10_000,
    "update_every": 4,
    "epsilon_end": 0.01,
    "epsilon_steps": 100_000,
    "eval_epsilon": 0.001,
    "eval_every": 100_000,
    "eval_episodes": 4,
    "per_beta_anneal_steps": 250_000,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """Settings of deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236); errors are those of `TrainerConfig`.

    Double targets (van Hasselt et al. 2016, arXiv:1509.06461), dueling heads (Wang et al. 2016, arXiv:1511.06581),
    n-step targets and prioritized replay (`use_per`; Schaul et al. 2016, arXiv:1511.05952) are a field each.

    >>> DQNConfig(env_id="CartPole-v1", use_per=True, dueling=True).batch_size
    64
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; `ALE/` names an Atari game, `module:Name-v0` imports the module first."""
    total_steps: int = 50_000
    """Environment steps of the whole run, over all environments; an Atari step is 4 frames of the emulator."""
    frame_stack: int = 1
    """Last observations that the net sees at a time; the buffer stores each of them once."""
    net: Literal["auto", "perceptron", "convolution"] = "auto"
    """Kind of net; auto is convolution for images (2 or 3 axes of bytes or bits), perceptron elsewhere."""
    hidden_sizes: tuple[int, ...] | None = None
    """Hidden layers (after convolutions, if any); None is 128 128 for vectors, 128 for small images, 512 for others."""
    tau: float = 0.01
    """Share by which the target net moves towards the online net; 1 copies it."""
    eval_epsilon: float = 0.0
    """Probability of a random action in evaluations."""

    n_step: int = 3
    buffer_capacity: int = 100_000
    batch_size: int = 64
    learning_rate: float = 5e-4
    update_every: int = 2
    per_beta_anneal_steps: int = 25_000

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self)
        fields.integers("frame_stack", minimum=1)
        fields.numbers("eval_epsilon", low=0.0, high=1.0)
        fields.numbers("tau", above=0.0, high=1.0)
        fields.choice("net", "auto", "perceptron", "convolution")
        if self.hidden_sizes is not None:
            fields.widths("hidden_sizes")

    def wrapped(self, make: MakeEnv) -> MakeEnv:
        """Return a function that builds the same environment with its last frames stacked, if they are asked for."""
        return stacked(make, self.frame_stack) if self.frame_stack > 1 else make

    @classmethod
    def atari(cls, env_id: str, **changes: Any) -> DQNConfig:
        """Return settings for an Atari game; `relive-lab train dqn` starts from them where the id begins with `ALE/`.

        Args:
            env_id: Such as `ALE/Pong-v5`.
            **changes: Fields that differ.

        >>> config = DQNConfig.atari("ALE/Pong-v5", use_per=True)
        >>> config.frame_stack, config.n_step, config.learning_rate
        (4, 3, 0.0001)
        """
        return cls(**{**ATARI, "env_id": env_id, **changes})


# Output channels, kernel and stride of each layer: Mnih et al. 2015, and Young and Tian 2019 (arXiv:1903.03176).
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
MINATAR = ((16, 3, 1),)
# The smallest side of an image, and the smallest that the larger net can read.
IMAGE, LARGE = 5, 36


def is_image(shape: tuple[int, ...], dtype: Any, stack: int) -> bool:
    """Return True if observations look like images: bytes or bits, each frame of two or three axes, no side tiny."""
    frame = shape[1:] if stack > 1 else shape
    return np.dtype(dtype).kind in "bu" and len(frame) in (2, 3) and sorted(frame)[-2] >= IMAGE


class Images(nn.Module):
    """Convolutions over images, in layers of Mnih et al. if they are `large` enough, else in one; bytes become [0, 1].

    Args:
        shape: Of an observation: `[H, W]`, `[H, W, C]` or `[C, H, W]` (the smaller end is the channels), with the stack
            in front if there is one.
        dtype: Of an observation.
        stack: Frames of an observation.
        generator: Source of the initial weights, U(-1/sqrt(in), 1/sqrt(in)).
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, stack: int, generator: torch.Generator) -> None:
        super().__init__()
        frame = shape[1:] if stack > 1 else shape
        self._stacked, self._axes = stack > 1, len(frame)
        self._last = len(frame) == 3 and frame[2] <= frame[0]
        self._scale = 1.0 / 255.0 if np.dtype(dtype) == np.uint8 else 1.0
        with torch.no_grad():
            sample = self._channels(torch.zeros((1, *shape)))
        channels, self.large = sample.shape[1], min(sample.shape[2:]) >= LARGE
        self.layers = nn.Sequential()
        for out, kernel, stride in NATURE if self.large else MINATAR:
            layer = nn.Conv2d(channels, out, kernel, stride)
            bound = 1.0 / math.sqrt(channels * kernel * kernel)
            for weight in layer.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
            self.layers.extend([layer, nn.ReLU()])
            channels = out
        self.layers.append(nn.Flatten())
        with torch.no_grad():
            self.size = int(self.layers(sample).shape[1])

    def forward(self, obs: Tensor) -> Tensor:
        """Map observations `[B, ...]` to features `[B, size]`."""
        features: Tensor = self.layers(self._channels(obs).float() * self._scale)
        return features

    def _channels(self, obs: Tensor) -> Tensor:
        """Reshape observations `[B, ...]` to `[B, C, H, W]`; the frames of a stack are channels, too."""
        if self._axes == 2:
            return obs if self._stacked else obs.unsqueeze(1)
        planes = obs.movedim(-1, -3) if self._last else obs
        return planes.flatten(1, 2) if self._stacked else planes


class QNet(nn.Module):
    """Values of all actions, `[B, A]`, from observations `[B, ...]`.

    Args:
        shape: Of an observation; `dtype` and `stack` likewise.
        actions: Number of actions.
        images: Whether observations are images.
        hidden: Widths of the hidden layers; None chooses them by the kind of observation.
        dueling: One stream for the state's value and one for the actions' advantages. They share the convolutions, or
            else all hidden layers but the last.
        generator: Source of the initial weights.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        actions: int,
        *,
        stack: int = 1,
        images: bool = False,
        hidden: tuple[int, ...] | None = None,
        dueling: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.images = Images(shape, dtype, stack, generator) if images else None
        features = self.images.size if self.images else int(np.prod(shape))
        if hidden is None:
            hidden = (128, 128) if self.images is None else (512,) if self.images.large else (128,)
        self.shared: Perceptron | None = None
        if dueling and self.images is None and len(hidden) > 1:
            self.shared, features, hidden = Perceptron((features, *hidden[:-1]), 0, generator), hidden[-2], hidden[-1:]
        self.advantage = Perceptron((features, *hidden, actions), 0, generator)
        self.value = Perceptron((features, *hidden, 1), 0, generator) if dueling else None

    def forward(self, obs: Tensor) -> Tensor:
        """Map observations `[B, ...]`, in the dtype in which they are stored, to values `[B, A]`."""
        x = self.images(obs) if self.images else obs.reshape(len(obs), -1).float()
        if self.shared is not None:
            x = torch.relu(self.shared(x))
        values: Tensor = self.advantage(x)
        if self.value is not None:
            # The mean is taken off, so that the sum has one split into value and advantage.
            values = self.value(x) + values - values.mean(1, keepdim=True)
        return values

    def evaluate(self, obs: npt.NDArray[Any]) -> Floats:
        """Map observations `[N, ...]` to values `[N, A]` without gradients."""
        if self.images is not None:
            with torch.no_grad():
                found: Floats = self(torch.from_numpy(obs).to(self.advantage.weights[0].device)).cpu().numpy()
            return found
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        if self.shared is not None:
            x = np.maximum(self.shared.evaluate(x), 0.0)
        values = self.advantage.evaluate(x)
        return values if self.value is None else self.value.evaluate(x) + values - values.mean(1, keepdims=True)


class DQN(QLearner[QNet]):
    """The agent: how it acts, and one update. Attributes are those of `Agent`, and the nets."""

    def __init__(self, config: DQNConfig, envs: SyncVectorEnv) -> None:
        self.config, self.random = config, Random(config)
        self.spaces = s = Discrete(envs, "DQNTrainer")
        c, k, source = config, config.frame_stack, self.random.initial()
        # Gymnasium's wrapper repeats an episode's first frame, and so does the buffer.
        obs = relive.Field(s.obs_shape[1:], s.obs_dtype, stack=k, pad="first") if k > 1 else None
        obs = relive.Field(s.obs_shape, s.obs_dtype) if obs is None else obs
        self.schema = relive.Schema(obs=obs, action=relive.Field((), envs.single_action_space.dtype))
        self.item = relive.Transitions(n_step=c.n_step, gamma=c.gamma)
        images = is_image(s.obs_shape, s.obs_dtype, k) if c.net == "auto" else c.net == "convolution"
        kind: dict[str, Any] = {"stack": k, "images": images, "hidden": c.hidden_sizes, "dueling": c.dueling}
        args: Any = (s.obs_shape, s.obs_dtype, s.actions)
        super().__init__(c, self.random, lambda: QNet(*args, **kind, generator=source), c.tau)

    # Acting -----------------------------------------------------------------------------------------------------------

    def explore(self, obs: Array, step: int, memory: None) -> Choice:
        """Choose the best actions `[N]`, or random ones: always at first, then ever more rarely."""
        return Choice(self.choose(obs, self.epsilon_at(step), self.random.rng))

    def choose(self, obs: Array, epsilon: float, rng: np.random.Generator) -> Array:
        """Return the best actions, and in a share `epsilon` of the rows random ones."""
        explore = rng.random(len(obs)) < epsilon
        chosen = rng.integers(self.spaces.actions, size=len(obs))
        if not explore.all():
            chosen = np.where(explore, chosen, self.net.evaluate(obs).argmax(1))
        return self.spaces.to_env(chosen)

    def policy(self) -> Act:
        """Return the policy that is evaluated; its random actions do not change what is learned."""
        rng, epsilon = np.random.default_rng(SEED), self.config.eval_epsilon
        return lambda obs: self.choose(self.spaces.batch_of(obs)[0], epsilon, rng)

    def memory(self, num_envs: int) -> None:
        """Return None: nothing is kept from step to step."""

    # Learning ---------------------------------------------------------------------------------------------------------

    def update(self, t: Any) -> Tensor:
        """Learn from a batch of tensors, and return |Q(s, a) - y|, `[B]`."""
        c = self.config
        value, error = self.judged(t)
        loss = (t.weights * (0.5 * loss_of(error, c.critic_loss, c.huber_threshold))).mean()
        step_clipped(self._optimizer, self._weights, loss, c.max_grad_norm)
        self.seen = {"loss/q": loss.detach(), "train/mean_q": value.detach()}
        size: Tensor = error.detach().abs()
        return size

    def judged(self, t: Any) -> tuple[Tensor, Tensor]:
        """Return Q(s, a) and Q(s, a) - y, both `[B]`."""
        value = self.net(t.obs).gather(1, t.action.long().sub(self.spaces.first).unsqueeze(1)).squeeze(1)
        return value, value - self.targets(t.reward, t.discount, t.next_obs)

    @torch.no_grad()
    def targets(self, reward: Tensor, discount: Tensor, next_obs: Tensor) -> Tensor:
        """Return y `[B]`."""
        values = self.target(next_obs)
        target: Tensor = reward + discount * best_value(values, self.net(next_obs) if self.config.double else values)
        return target

    @torch.no_grad()
    def td_error(self, batch: relive.Batch) -> npt.NDArray[np.float32]:
        """Return the TD errors of a batch of the buffer's, float32 `[B]`.

        >>> trainer = DQNTrainer(DQNConfig(total_steps=50, start_steps=20, batch_size=8, eval_every=0))
        >>> result = trainer.train()
        >>> trainer.td_error(trainer.buffer.sample(3)).shape
        (3,)
        """
        error: npt.NDArray[np.float32] = self.judged(self.random.tensors(batch))[1].cpu().numpy()
        return error

    errors = td_error


class DQNTrainer(QTrainer[DQNConfig, DQN]):
    """Train a Q-net on any environment with discrete actions: vectors, images, Atari games.

    Arguments, attributes and errors are those of `SACTrainer`. `make_env` builds an environment without stacked frames;
    by default Atari games get the usual wrappers, which need ale-py and OpenCV.

    >>> config = DQNConfig(env_id="CartPole-v1", total_steps=300, start_steps=200, batch_size=32, hidden_sizes=(32,),
    ...                    eval_every=300, eval_episodes=2, buffer_capacity=1_000, update_every=1, use_per=True)
    >>> result = DQNTrainer(config).train()
    >>> result.eval_returns.shape, result.updates
    ((1, 2), 100)
    """

    _name, _settings, _kind = "DQNTrainer", DQNConfig, DQN

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> Array:
        """Choose actions, as `SAC.act` does; without `deterministic`, random ones as often as in training.

        With `frame_stack`, `obs` is stacked.
        """
        agent = self.agent
        rows, single = agent.spaces.batch_of(obs)
        epsilon = 0.0 if deterministic else agent.epsilon.at(self.step)
        action: Array = agent.choose(rows, epsilon, agent.random.rng)
        return action[0] if single else action
