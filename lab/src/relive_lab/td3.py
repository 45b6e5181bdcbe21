"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477) with hundreds of environments, all on one device, from top to bottom.

    y = r + discount * min(Q1', Q2')(s', a')      a' = pi'(s') + clipped noise
    critics:  mean of w * ((Q1 - y)^2 + (Q2 - y)^2)      w = 1 under uniform replay
    actor:    mean of -Q1(s, pi(s)), every second update

Environments, replay and nets are tensors; the loop reads none of them, so that it never waits for a GPU. There an
update is captured in a CUDA graph and replayed.

Settings, the agent with its update, and the loop.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from operator import itemgetter
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import relive
from relive.batch import AnyBatch
from relive_lab import checks
from relive_lab.config import sampler_of
from relive_lab.envs.tensors import Pendulum, Reach, TensorEnvs
from relive_lab.nets import Perceptron, move_towards, step_apart
from relive_lab.results import Progress, TrainResult

Array = npt.NDArray[np.float64]
ENVS: dict[str, type[TensorEnvs]] = {"pendulum": Pendulum, "reach": Reach}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Config:
    """Settings of TD3.

    >>> TD3Config(n_step=3).batch_size
    256
    """

    env: str = "reach"
    """`pendulum` or `reach`."""
    limit: int = 30
    """Steps of a training episode."""
    ends: Literal["final", "reset", "none"] = "final"
    """What an episode's last item bootstraps from: its final observation, the next episode's first, or nothing."""
    num_envs: int = 256
    """Environments, stepped together."""
    total_steps: int = 256_000
    """Environment steps of the whole run, over all environments."""
    seed: int = 0
    """Decides initial weights, environments, noise and draws."""
    device: str = "cpu"
    """Where everything lives."""

    buffer_capacity: int = 256_000
    """Steps the replay buffer holds, over all environments."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    use_per: bool = False
    """Draw by TD error instead of uniformly."""
    recent_share: float | None = None
    """Draw newer items more often, as in `SACConfig`."""
    gamma: float = 0.99
    """Discount per step."""

    batch_size: int = 256
    """Items per update."""
    updates_per_step: int = 4
    """Updates after each step of all environments, an even number: every second one moves the actor, too."""
    start_steps: int = 2_560
    """Steps of random actions before the first update."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: float = 2e-3
    """Adam step size."""
    tau: float = 0.02
    """Share by which the target nets follow after each second update."""
    reward_scale: float = 0.1
    """Factor on rewards in the targets; reported returns are never scaled."""
    explore: float = 0.2
    """Standard deviation of the noise on actions."""
    smooth: float = 0.2
    """Standard deviation of the noise on the target's actions, which is clipped at 2.5 times that."""

    eval_every: int = 25_600
    """Environment steps between two evaluations."""
    eval_envs: int = 64
    """Environments of an evaluation; their initial states are the same in every evaluation of every run."""
    eval_length: int = 200
    """Steps of an evaluation, which no time limit ends."""

    def __post_init__(self) -> None:
        fields = checks.Fields(self)
        fields.choice("env", *ENVS)
        fields.choice("ends", "final", "reset", "none")
        fields.integers("limit", "num_envs", "total_steps", "n_step", "batch_size", "eval_every", minimum=1)
        fields.integers("updates_per_step", minimum=2)
        if self.updates_per_step % 2:
            raise fields.refusal("updates_per_step", "an even number")
        if self.start_steps < self.n_step * self.num_envs:
            raise fields.refusal("start_steps", f"at least n_step * num_envs ({self.n_step * self.num_envs})")


class TD3:
    """The agent: how it acts, and what it learns from a batch."""

    def __init__(self, config: TD3Config, obs_size: int, action_size: int) -> None:
        self.config, device = config, torch.device(config.device)
        source = torch.Generator().manual_seed(config.seed)
        layers = (obs_size, *config.hidden_sizes, action_size)
        judged = (obs_size + action_size, *config.hidden_sizes, 1)
        self.actor, self.actor_target = (Perceptron(layers, 0, source).to(device) for _ in range(2))
        self.critic, self.critic_target = (Perceptron(judged, 2, source).to(device) for _ in range(2))
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
        nets = (self.actor, self.critic, self.actor_target, self.critic_target)
        self.weights: dict[Perceptron, list[Tensor]] = {net: [*net.parameters()] for net in nets}
        self.optimizers = {
            net: torch.optim.Adam(
                self.weights[net], lr=config.learning_rate, foreach=True, capturable=device.type != "cpu"
            )
            for net in (self.actor, self.critic)
        }
        self.generator = torch.Generator(device).manual_seed(config.seed)

    @torch.no_grad()
    def act(self, obs: Tensor, noise: float = 0.0, actor: Perceptron | None = None) -> Tensor:
        """Return actions in [-1, 1], `[L, A]`, with noise of a standard deviation, clipped at 2.5 times that."""
        action = torch.tanh((actor or self.actor)(obs))
        if noise:
            drawn = torch.randn(action.shape, generator=self.generator, device=action.device)
            action = (action + noise * drawn.clamp(-2.5, 2.5)).clamp(-1.0, 1.0)
        return action

    def values(self, critic: Perceptron, obs: Tensor, action: Tensor) -> Tensor:
        """Return both estimates of the value of each action, `[2, B]`."""
        x = torch.cat((obs, action), 1)
        found: Tensor = critic(x.expand(2, *x.shape)).squeeze(-1)
        return found

    def learn(self, batch: AnyBatch, actor_too: bool) -> Tensor:
        """Do one update; return the TD errors, `[B]`."""
        config = self.config
        with torch.no_grad():
            action = self.act(batch.next_obs, config.smooth, self.actor_target)
            value = self.values(self.critic_target, batch.next_obs, action).amin(0)
            target = config.reward_scale * batch.reward + batch.discount * value
        error = self.values(self.critic, batch.obs, batch.action) - target
        loss = (batch.weights * error.square()).sum(0).mean()
        step_apart(self.optimizers[self.critic], self.weights[self.critic], loss)
        if actor_too:
            actions = torch.tanh(self.actor(batch.obs))
            loss = -self.values(self.critic, batch.obs, actions)[0].mean()
            step_apart(self.optimizers[self.actor], self.weights[self.actor], loss)
            for target_net, net in ((self.actor_target, self.actor), (self.critic_target, self.critic)):
                move_towards(self.weights[target_net], self.weights[net], config.tau)
        found: Tensor = error.detach().abs().mean(0)
        return found


def captured(update: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
    """Return an update as a CUDA graph, which starts all of its kernels at once; three updates are done on the way."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        update()
    replay: Callable[[], None] = graph.replay
    return replay


class Training:
    """The parts of a run, and its two halves: a step of all environments, and the updates after it.

    Attributes:
        envs: The environments, one a lane.
        agent: The nets.
        buffer: The replay buffer.
    """

    def __init__(self, config: TD3Config) -> None:
        self.config, kind = config, ENVS[config.env]
        self.envs = kind(config.num_envs, limit=config.limit, device=config.device, seed=config.seed)
        self.agent = TD3(config, kind.obs_size, kind.action_size)
        self.buffer = relive.DeviceBuffer(
            relive.Schema(obs=relive.Field((kind.obs_size,)), action=relive.Field((kind.action_size,))),
            config.buffer_capacity,
            num_envs=config.num_envs,
            item=relive.Transitions(n_step=config.n_step, gamma=config.gamma),
            sampler=sampler_of(relive.Prioritized() if config.use_per else None, config.recent_share),
            device=config.device,
            seed=config.seed,
        )
        self._replay: Callable[[], None] | None = None

    def step(self, *, random: bool) -> None:
        """Take one step in all environments, and store it."""
        envs, ends, obs = self.envs, self.config.ends, self.envs.obs
        action = envs.uniform(*[1.0] * envs.action_size) if random else self.agent.act(obs, self.config.explore)
        step = envs.step(action)
        self.buffer.add(
            obs=obs,
            action=action,
            reward=step.reward,
            next_obs=step.next_obs,
            # Without it, `next_obs` is taken for the final observation.
            final_obs=step.final_obs if ends == "final" else None,
            # Known nowhere: discounts are 0.
            final_mask=step.terminated if ends == "none" else None,
            terminated=step.terminated,
            truncated=step.truncated,
            continues=True,
        )

    def update(self) -> None:
        """Do all updates that follow a step, with one draw: it costs more than the update of a small net."""
        config, errors = self.config, []
        drawn = self.buffer.sample(config.batch_size * config.updates_per_step)
        for number in range(config.updates_per_step):
            part = slice(number * config.batch_size, (number + 1) * config.batch_size)
            errors.append(self.agent.learn(drawn.map(itemgetter(part)), number % 2 == 1))
        if config.use_per:
            self.buffer.update_priorities(drawn.ids, torch.cat(errors))

    def learn(self) -> None:
        """Do the same; on an NVIDIA GPU as a captured graph."""
        if self._replay is None:
            cuda = self.envs.device.type == "cuda"
            self._replay = captured(self.update, self.agent.generator) if cuda else self.update
        self._replay()


def train(config: TD3Config, progress: Callable[[Progress], object] | None = None) -> TrainResult:
    """Train one agent.

    Args:
        config: All settings.
        progress: Called after every evaluation; returning False ends the run there.

    Returns:
        What the run has seen: evaluations, and no training episodes.

    >>> config = TD3Config(num_envs=16, total_steps=640, start_steps=320, eval_every=320, buffer_capacity=640)
    >>> train(config).eval_returns.shape
    (2, 64)
    """
    started, training, steps, updates = time.perf_counter(), Training(config), 0, 0
    eval_steps: list[int] = []
    returns: list[Array] = []
    while steps < config.total_steps:
        random = steps < config.start_steps
        training.step(random=random)
        steps += config.num_envs
        if not random:
            training.learn()
            updates += config.updates_per_step
        if steps // config.eval_every > len(eval_steps):
            training.buffer.check()
            eval_steps.append(steps)
            returns.append(evaluate(training.agent, config))
            now = Progress(
                step=steps,
                total_steps=config.total_steps,
                episodes=0,
                updates=updates,
                train_return=math.nan,
                eval_return=float(returns[-1].mean()),
            )
            if progress is not None and progress(now) is False:
                break
    return TrainResult(
        eval_steps=np.array(eval_steps, np.int64),
        eval_episodes=np.zeros(len(eval_steps), np.int64),
        eval_returns=np.array(returns, np.float64).reshape(len(eval_steps), config.eval_envs),
        episode_steps=np.zeros(0, np.int64),
        episode_returns=np.zeros(0),
        steps=steps,
        updates=updates,
        seconds=time.perf_counter() - started,
    )


def evaluate(agent: TD3, config: TD3Config) -> Array:
    """Return what each of the evaluation's environments earns without noise, float64 `[eval_envs]`."""
    envs = ENVS[config.env](config.eval_envs, limit=None, device=config.device, seed=1_000_000)
    earned = torch.zeros(config.eval_envs, device=envs.device)
    for _ in range(config.eval_length):
        earned += envs.step(agent.act(envs.obs)).reward
    found: Array = earned.cpu().double().numpy()
    return found
