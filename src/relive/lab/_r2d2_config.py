"""The settings of the R2D2 trainer. No PyTorch here, so that a command line can show them at once."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from relive.lab._config import TrainerConfig
from relive.lab._fields import Fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class R2D2Config(TrainerConfig):
    """Everything that decides a recurrent Q-learning run (Kapturowski et al. 2019, R2D2).

    The defaults solve `relive/TMaze-v0` in a minute. `state` and `burn_in` are the paper's two answers to the question
    with which memory a sequence from the middle of an episode begins; `use_per` is the one switch between uniform and
    prioritized replay: nets and loss, its scale included, stay the same.

    Raises:
        ArgumentError: A value outside its legal range; the message names the field.

    >>> R2D2Config(length=80, burn_in=40, starts=40, n_step=5, gamma=0.997, rescale=True).state
    'stored'
    """

    env_id: str = "relive/TMaze-v0"
    """Gymnasium id of the environment; `module:Name-v0` imports the module first."""
    num_envs: int = 10
    """Environments stepped side by side."""
    total_steps: int = 30_000
    """Environment steps of the whole run, over all environments."""

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
    per_beta_anneal_steps: int = 3_000
    """Updates over which beta moves linearly from start to end."""
    gamma: float = 0.98
    """Discount per step."""

    lstm_size: int = 32
    """Cells of the LSTM."""
    hidden_sizes: tuple[int, ...] = ()
    """Widths of layers between observations and LSTM, if any."""
    dueling: bool = False
    """Estimate the value of a state and the advantages of its actions apart."""
    double: bool = True
    """Let the online net choose the action whose value the target net gives."""
    rescale: bool = False
    """Learn h(Q) with h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, for rewards of many sizes."""

    buffer_capacity: int = 10_000
    """Steps the replay buffer holds, over all environments."""
    batch_size: int = 32
    """Sequences per update."""
    learning_rate: float = 2e-3
    """Adam step size."""
    adam_eps: float = 1e-8
    """Adam's epsilon; 1e-3 in the paper."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this norm, all weights together."""
    target_every: int = 100
    """Updates between two copies of the net to the target net."""

    update_every: int = 10
    """Environment steps between two rounds of updates."""
    epsilon_start: float = 1.0
    """Probability of a random action at the first step."""
    epsilon_end: float = 0.05
    """Probability of a random action from step `epsilon_steps` on."""
    epsilon_steps: int = 7_500
    """Environment steps over which that probability falls linearly."""
    explore_weights: tuple[float, ...] | None = None
    """How likely each action is among random ones, up to a factor; None: all alike."""
    eval_every: int = 5_000
    """Environment steps between two evaluations; 0 never evaluates."""
    eval_episodes: int = 50
    """Episodes of an evaluation; their seeds are the same in every evaluation of every run."""

    def __post_init__(self) -> None:
        """Refuse what cannot train, and name the field."""
        super().__post_init__()
        fields = Fields(self)
        fields.integers("length", "starts", "lstm_size", "target_every", "epsilon_steps", minimum=1)
        fields.integers("burn_in", minimum=0)
        fields.numbers("priority_eta", "epsilon_start", "epsilon_end", low=0.0, high=1.0)
        fields.numbers("max_grad_norm", "adam_eps", above=0.0)
        fields.flags("dueling", "double", "rescale")
        fields.choice("state", "stored", "zero")
        fields.widths("hidden_sizes", none_too=True)
        weights: Any = self.explore_weights
        if weights is None:
            return
        legal = isinstance(weights, tuple | list) and all(isinstance(w, int | float) for w in weights)
        if not legal or not all(0.0 <= w < math.inf for w in weights) or not sum(weights) > 0.0:
            raise fields.refusal("explore_weights", "finite weights >= 0, not all of them 0")
        object.__setattr__(self, "explore_weights", tuple(float(w) for w in weights))
