"""A pipeline for `relive doctor my_doctor:make`: put your buffer and your loop in the places that are marked."""

from collections import deque
from typing import Any

import gymnasium
import numpy as np

# from my_project.replay import MyBuffer


class Mine:
    """My replay buffer, and the loop that fills it."""

    def run(
        self,
        make_env: Any,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: Any,
        capacity: int | None = None,
        reset_at: tuple[int, ...] = (),
    ) -> None:
        """Step the environments `calls` times, and fill the buffer, as my training does.

        1. Make the buffer here. An earlier run with the same capacity is overwritten.
        2. Leave `autoreset_mode` out if your loop makes its environments itself, from `make_env`.
        3. Observations are numbers in arrays of shape (1,); there are two actions, which do not matter.
        """
        if capacity is None or getattr(self, "capacity", None) != capacity:
            self.steps: deque[Any] = deque(maxlen=capacity)  # yours: MyBuffer(capacity or 100_000, n_step, gamma)
        self.capacity, self.n_step, self.gamma = capacity, n_step, gamma
        envs = gymnasium.vector.SyncVectorEnv([make_env] * num_envs, autoreset_mode=autoreset_mode)
        obs, _ = envs.reset()
        ended = np.zeros(num_envs, bool)
        modes = gymnasium.vector.AutoresetMode
        for call in range(calls):
            cut = call in reset_at  # an early reset, as before an evaluation
            if cut:
                obs, _ = envs.reset()
                ended[:] = False
            next_obs, reward, terminated, truncated, infos = envs.step(np.zeros(num_envs, int))
            final = next_obs.copy()
            if autoreset_mode is modes.SAME_STEP:
                for which in np.flatnonzero(terminated | truncated):
                    final[which] = infos["final_obs"][which]
            for lane in range(num_envs):
                if autoreset_mode is modes.NEXT_STEP and ended[lane]:
                    continue  # this call only reset the environment
                step = obs[lane].copy(), reward[lane], terminated[lane], truncated[lane], final[lane].copy()
                self.steps.append((lane, cut, *step))  # yours: self.buffer.add(...)
            obs, ended = next_obs, terminated | truncated
            if autoreset_mode is modes.DISABLED and ended.any():
                obs, _ = envs.reset(options={"reset_mask": ended})

    def items(self) -> Any:
        """Return every stored item as my learner sees it: the target is `reward + bootstrap * V(next_obs)`."""
        steps = list(self.steps)  # yours: everything that the buffer can return
        for at, (lane, _, obs, *_) in enumerate(steps):
            total, factor = 0.0, 1.0
            window = [step for step in steps[at:] if step[0] == lane][: self.n_step]
            for number, (_, cut, _, reward, terminated, truncated, next_obs) in enumerate(window):
                if cut and number:
                    break  # the stream was reset between these steps
                total, factor, last = total + factor * reward, factor * self.gamma, next_obs
                if terminated or truncated:
                    factor *= not terminated
                    break
            yield {"obs": obs, "reward": total, "bootstrap": factor, "next_obs": last}

    # More methods, and more is examined:
    #   sample(n): n random items; with a `handle` each and `update(handles, td_errors)`: priorities.
    #   arrays(): the stored arrays by name; choose(masses, n): draws by mass.
    #   write(handles, values), values(): what is written back, such as latents.
    #   save(), load(saved): what was written, after a load.


def make() -> Mine:
    """Make the pipeline, anew for each check."""
    return Mine()
