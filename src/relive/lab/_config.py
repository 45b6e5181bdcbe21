"""The settings of all trainers. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from relive.lab._fields import Fields

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
class TrainerConfig:
    """What every run needs: an environment, replay, a pace of updates, evaluations, and where to write.

    Each algorithm's own settings, and its own defaults for these, are in a subclass.

    Raises:
        ArgumentError: A value outside its legal range; the message names the field.

    >>> from relive.lab import DQNConfig
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
    save_every: int = 0
    """Environment steps between two saves of the run; 0 saves it at its end alone."""
    device: str = "cpu"
    """PyTorch device of the nets."""
    torch_threads: int | None = None
    """Threads of PyTorch in this process; small nets are fastest with 1."""

    def __post_init__(self) -> None:
        fields = Fields(self)
        fields.integers("num_envs", "total_steps", "n_step", "buffer_capacity", "batch_size", minimum=1)
        fields.integers("update_every", "updates_per_step", "eval_episodes", "log_every", minimum=1)
        fields.integers("per_beta_anneal_steps", minimum=1)
        fields.integers("seed", "start_steps", "eval_every", "save_every", "actors", minimum=0)
        fields.numbers("per_alpha", "per_beta_start", "per_beta_end", "gamma", low=0.0, high=1.0)
        fields.numbers("learning_rate", "huber_threshold", above=0.0)
        fields.choice("critic_loss", "mse", "huber")
        fields.flags("use_per")
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(TrainerConfig):
    """Settings of soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905); errors are those of `TrainerConfig`.

    `use_per` alone switches between uniform and prioritized replay (Schaul et al. 2016, arXiv:1511.05952). Nets and
    loss stay the same, so that two runs that differ in this flag can be compared. `priority="precision"` with
    `use_per=True` draws by `relive.precision_priority` instead of by TD error.

    >>> SACConfig(env_id="Pendulum-v1", total_steps=5_000, n_step=3).batch_size
    256
    """

    env_id: str = "Pendulum-v1"
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: float = 3e-4
    """Adam step size of critics, actor and temperature."""
    actor_learning_rate: float | None = None
    """Step size of the actor and the temperature alone, where it differs."""
    tau: float = 0.005
    """Share by which the target critics follow the critics after each update."""
    target_entropy: float | Literal["auto"] = "auto"
    """Entropy the temperature aims at, in nats of actions scaled to [-1, 1]; auto is minus the number of actions."""
    init_alpha: float = 1.0
    """Entropy temperature at the start."""
    autotune: bool = True
    """Learn the temperature; otherwise it stays at `init_alpha`."""
    reward_scale: float = 1.0
    """Factor on rewards in the targets; reported returns are never scaled."""
    priority: Literal["td", "precision"] = "td"
    """What `use_per` draws by: TD error, or the inverse of the reward's predicted noise (alpha 1, beta 0)."""
    measure_noise: bool = False
    """Predict the reward's noise also where draws do not need it: `noise/share` in TensorBoard; draws do not change."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self)
        fields.choice("priority", "td", "precision")
        fields.flags("measure_noise")
        if self.priority == "precision":
            self._fits_precision(fields)
        fields.numbers("init_alpha", "reward_scale", above=0.0)
        fields.numbers("tau", above=0.0, high=1.0)
        if self.actor_learning_rate is not None:
            fields.numbers("actor_learning_rate", above=0.0)
        if self.target_entropy != "auto":
            fields.numbers("target_entropy")
        fields.widths("hidden_sizes")
        fields.flags("autotune")

    def _fits_precision(self, fields: Fields) -> None:
        if not self.use_per:
            remedy = "`use_per=False` draws uniformly, whatever `priority` is"
            raise fields.refusal("use_per", "`True` with `priority='precision'`", remedy)
        for name, fixed in {"per_alpha": 1.0, "per_beta_start": 0.0, "per_beta_end": 0.0}.items():
            default = getattr(SACConfig, name)
            if getattr(self, name) not in (default, fixed):
                remedy = "draws by precision have alpha 1 and beta 0"
                raise fields.refusal(
                    name, f"{fixed:g} (or the default, {default:g}) with `priority='precision'`", remedy
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QLearningConfig(TrainerConfig):
    """What DQN and R2D2 share: the target, the target net, and random actions."""

    double: bool = True
    """Let the online net choose the action whose value the target net gives."""
    dueling: bool = False
    """Estimate the value of a state and the advantages of its actions apart."""
    critic_loss: Literal["mse", "huber"] = "huber"
    """Loss of a TD error e: half its square, or Huber's, e**2 / 2 up to the threshold k and k * (|e| - k / 2) above."""
    huber_threshold: float = 1.0
    """Threshold of Huber's loss, on the scale of the rewards that are learned from; of h(Q) with `rescale`."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this norm, all weights together."""
    target_every: int = 1
    """Updates between two moves of the target net."""

    epsilon_start: float = 1.0
    """Probability of a random action at the first step."""
    epsilon_end: float = 0.05
    """Probability of a random action from step `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Environment steps over which that probability falls linearly."""
    eval_every: int = 5_000

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self)
        fields.integers("target_every", "epsilon_steps", minimum=1)
        fields.numbers("epsilon_start", "epsilon_end", low=0.0, high=1.0)
        fields.numbers("max_grad_norm", above=0.0)
        fields.flags("double", "dueling")


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

    @classmethod
    def atari(cls, env_id: str, **changes: Any) -> DQNConfig:
        """Return settings for an Atari game; `relive train dqn` starts from them where the id begins with `ALE/`.

        Args:
            env_id: Such as `ALE/Pong-v5`.
            **changes: Fields that differ.

        >>> config = DQNConfig.atari("ALE/Pong-v5", use_per=True)
        >>> config.frame_stack, config.n_step, config.learning_rate
        (4, 3, 0.0001)
        """
        return cls(**{**ATARI, "env_id": env_id, **changes})


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
    """Sequences start at every `starts`-th step of an environment; memory is stored at these steps."""
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
