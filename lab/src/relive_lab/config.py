"""The settings that every run has. Each trainer adds its own, and its own defaults for these, in its file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

import relive
from relive.samplers import Sampler
from relive_lab.checks import Fields

MakeEnv = Callable[[], Any]
"""Builds one Gymnasium environment."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """The settings of every run: an environment, replay, a pace of updates, evaluations, and output files.

    Each algorithm's own settings, and its own defaults for these, are in a subclass.

    Raises:
        ArgumentError: A value outside its legal range; the message names the field.

    >>> from relive_lab import DQNConfig
    >>> config = DQNConfig(use_per=True)
    >>> isinstance(config, TrainerConfig), config.per_beta_start
    (True, 0.4)
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; `module:Name-v0` imports the module first."""
    env_kwargs: Mapping[str, int | float | bool | str] = dataclasses.field(default_factory=dict)
    """Keyword arguments of the environment."""
    num_envs: int = 1
    """Environments stepped side by side, in each actor where there are any."""
    actors: int = 0
    """Processes that step environments with the learner's newest weights, while it learns; 0: it does so itself."""
    cluster: str | None = None
    """Ray cluster on which actors and the replay buffer's shards run: an address such as `auto`, or `local` for one of
    this machine; None: processes of this machine."""
    shards: int = 1
    """Parts of the replay buffer on the cluster, each an actor with its share of the capacity."""
    total_steps: int = 20_000
    """Environment steps of the whole run, over all environments."""
    seed: int = 0
    """Decides initial weights, environment seeds, exploration and replay draws."""

    use_per: bool = False
    """Draw by priorities (prioritized replay), TD errors unless the trainer has others, instead of uniformly."""
    per_alpha: float = 0.6
    """Exponent of the priorities: 0 is uniform, 1 is proportional."""
    per_beta_start: float = 0.4
    """Importance-sampling exponent at the first update."""
    per_beta_end: float = 1.0
    """Importance-sampling exponent from update `per_beta_anneal_steps` on."""
    per_beta_anneal_steps: int = 200_000
    """Updates over which beta moves linearly from start to end."""
    recent_share: float | None = None
    """Draw newer items more often: the mean age of what is drawn, as a share of what is stored, below 0.5. With
    `use_per`, half of each batch is uniform, a quarter by priorities, and a quarter recent; None: ages do not count."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    gamma: float = 0.99
    """Discount per step."""
    critic_loss: Literal["mse", "huber"] = "mse"
    """Loss of a TD error e: its square, or Huber's, e**2 up to the threshold k and k * (2 |e| - k) above."""
    huber_threshold: float = 0.3
    """Threshold of Huber's loss, on the scale of the rewards that are learned from; some times the usual TD error."""

    buffer_capacity: int = 1_000_000
    """Steps the replay buffer holds, over all environments."""
    batch_size: int = 256
    """Items per update."""
    learning_rate: float = 3e-4
    """Adam step size."""

    start_steps: int = 1_000
    """Steps of uniformly random actions before the first update."""
    update_every: int = 1
    """Environment steps between two rounds of updates."""
    updates_per_step: int = 1
    """Updates in each round."""
    samples_per_insert: float | None = None
    """Items drawn per step added, held by a `RateLimiter`; it stands for `update_every` and `updates_per_step`."""

    eval_every: int = 1_000
    """Environment steps between two evaluations; 0 never evaluates."""
    eval_episodes: int = 10
    """Episodes of an evaluation; their seeds are the same in every evaluation of every run."""
    log_dir: str | None = None
    """Folder for TensorBoard events."""
    log_every: int = 1_000
    """Environment steps between two TensorBoard entries."""
    save_every: int | str = 0
    """Environment steps between two saves of the run, or a time such as 1s or 5min; 0 saves it at its end alone."""
    keep_batches: int = 0
    """Number of last batches kept in the run's folder, in `batches`, for `relive batches`; 0: none."""
    device: str = "cpu"
    """PyTorch device of the nets."""
    torch_threads: int | None = None
    """Threads of PyTorch in this process; small nets are fastest with 1."""

    def __post_init__(self) -> None:
        fields = Fields(self)
        fields.integers("num_envs", "total_steps", "n_step", "buffer_capacity", "batch_size", minimum=1)
        fields.integers("update_every", "updates_per_step", "eval_episodes", "log_every", minimum=1)
        fields.integers("per_beta_anneal_steps", minimum=1)
        fields.integers("seed", "start_steps", "eval_every", "actors", "keep_batches", minimum=0)
        fields.rhythm("save_every")
        fields.numbers("per_alpha", "per_beta_start", "per_beta_end", "gamma", low=0.0, high=1.0)
        fields.numbers("learning_rate", "huber_threshold", above=0.0)
        fields.choice("critic_loss", "mse", "huber")
        fields.flags("use_per")
        if self.recent_share is not None:
            fields.numbers("recent_share", above=0.0, below=0.5)
        if self.samples_per_insert is not None:
            fields.numbers("samples_per_insert", above=0.0)
        if self.torch_threads is not None:
            fields.integers("torch_threads", minimum=1)
        if not isinstance(self.env_id, str) or not self.env_id:
            raise fields.refusal("env_id", "the id of a Gymnasium environment")
        if not isinstance(self.env_kwargs, Mapping):
            raise fields.refusal("env_kwargs", "a mapping of keyword arguments")
        if self.batch_size > self.buffer_capacity:
            raise fields.refusal("batch_size", f"at most buffer_capacity ({self.buffer_capacity})")
        self._fits_cluster(fields)
        if self.num_envs * self.actors > self.buffer_capacity:
            most = f"at most {self.buffer_capacity // self.num_envs}, for a row of buffer_capacity to each environment"
            raise fields.refusal("actors", most)

    def _fits_cluster(self, fields: Fields) -> None:
        if self.keep_batches == 1 or (self.keep_batches and self.cluster is not None):
            raise fields.refusal("keep_batches", "0, or at least 2 without `cluster`")
        fields.integers("shards", minimum=1)
        if self.cluster is not None and (not isinstance(self.cluster, str) or not self.cluster):
            raise fields.refusal("cluster", "the address of a Ray cluster, or `local`")
        if self.cluster is not None and not self.actors:
            raise fields.refusal("actors", "at least 1 with `cluster`", "they are what runs there")
        if self.shards > (1 if self.cluster is None else self.num_envs * self.actors):
            most = (
                "1 without `cluster`" if self.cluster is None else f"at most {self.num_envs * self.actors}, the lanes"
            )
            raise fields.refusal("shards", most)

    @property
    def lanes(self) -> int:
        """Environments of the whole run, over all actors."""
        return self.num_envs * max(1, self.actors)

    def sampler(self) -> Sampler:
        """Return how items are drawn."""
        beta = relive.Anneal(self.per_beta_start, self.per_beta_end, over=self.per_beta_anneal_steps)
        return sampler_of(
            relive.Prioritized(alpha=self.per_alpha, beta=beta) if self.use_per else None, self.recent_share
        )

    def wrapped(self, make: MakeEnv) -> MakeEnv:
        """Return a function that builds the same environment in the wrappers that the settings ask for."""
        return make

    def seeds(self, step: int) -> list[int]:
        """Return the seeds of a run that begins or goes on at a step: of replay, PyTorch, acting, and each environment.

        They are hashed, not added: the environments of a run must not live through the episodes of the next seed's.
        """
        state = np.random.SeedSequence((self.seed, step)).generate_state(3 + self.num_envs)
        return [int(seed) for seed in state]


def sampler_of(prioritized: relive.Prioritized | None, recent_share: float | None) -> Sampler:
    """Return the sampler of these parts; without any it is uniform."""
    if recent_share is None:
        return prioritized or relive.Uniform()
    recent = relive.Recent(share=recent_share)
    return relive.Blend((relive.Uniform(), 0.5), (prioritized, 0.25), (recent, 0.25)) if prioritized else recent
