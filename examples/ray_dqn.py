"""Ape-X by hand: env-runners and replay shards as Ray actors, and a learner here; on a laptop's own cluster, too.

`relive-lab train dqn --cluster local` does the same with evaluations, saves and a progress bar. This is what there is
to it: every runner has a writer of its own lanes, judges its steps with its own net (Horgan et al. 2018), and gets
weights by `ray.put`; the learner draws batches ahead and sends priorities back without waiting.

    python examples/ray_dqn.py --steps 20000
    python examples/ray_dqn.py --cluster auto --runners 32 --shards 4       # on the cluster that is running
"""

from __future__ import annotations

import argparse
import copy

import gymnasium
import numpy as np
import ray
import torch
from torch import nn

import relive
from relive.ray import Shards, Writer

LANES, GAMMA, N_STEP = 4, 0.99, 3
CALL = 25  # steps of each lane in one call of a runner


def net_of() -> nn.Sequential:
    """Make the Q-net, small enough for a laptop."""
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def flattened(net: nn.Module) -> np.ndarray:
    """Flatten all weights into one array: the cheapest thing to send."""
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy().copy()


def restore(net: nn.Module, weights: np.ndarray) -> None:
    """Put them back; what comes from Ray is read-only."""
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), net.parameters())


@ray.remote
class Runner:
    """Steps a few environments with the newest weights that it was given."""

    def __init__(self, writer: Writer, epsilon: float, seed: int) -> None:
        torch.set_num_threads(1)
        self.writer, self.epsilon, self.rng = writer, epsilon, np.random.default_rng(seed)
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        makers = [lambda: gymnasium.make("CartPole-v1")] * LANES
        self.envs = gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=mode)
        self.obs, _ = self.envs.reset(seed=seed)
        self.net, self.returns, self.running = net_of(), list[float](), np.zeros(LANES)

    def run(self, weights: np.ndarray, steps: int) -> list[float]:
        """Step all environments so many times; return the returns of the episodes that ended."""
        restore(self.net, weights)
        self.returns = []
        for _ in range(steps):
            with torch.no_grad():
                best = self.net(torch.from_numpy(self.obs)).argmax(1).numpy()
            action = np.where(self.rng.random(LANES) < self.epsilon, self.rng.integers(0, 2, LANES), best)
            after, reward, terminated, truncated, infos = self.envs.step(action)
            ended, final = terminated | truncated, np.array(after)
            for lane in np.flatnonzero(ended):
                final[lane] = infos["final_obs"][lane]
            step = {"obs": self.obs, "action": action, "reward": reward, "next_obs": final}
            priority = self.judged(**step, over=terminated)
            self.writer.add(**step, terminated=terminated, truncated=truncated, priority=priority)
            self.running += reward
            self.returns += self.running[ended].tolist()
            self.running[ended], self.obs = 0.0, after
        return self.returns

    @torch.no_grad()
    def judged(self, *, over: np.ndarray, **step: np.ndarray) -> np.ndarray:
        """Compute first priorities: one-step TD errors, `[LANES]`."""
        now, later = (self.net(torch.from_numpy(step[name])).numpy() for name in ("obs", "next_obs"))
        target = step["reward"] + GAMMA * ~over * later.max(axis=1)
        return np.abs(target - now[np.arange(LANES), step["action"]]) + 1e-6

    def flush(self) -> int:
        """Send all steps to the shards."""
        return self.writer.flush()


def learn(net: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, batch: relive.Batch) -> np.ndarray:
    """Make one update by double Q-learning; return TD errors."""
    with torch.no_grad():
        best = net(batch.next_obs).argmax(1, keepdim=True)
        wanted = batch.reward + batch.discount * target(batch.next_obs).gather(1, best).squeeze(1)
    value = net(batch.obs).gather(1, batch.action.long()[:, None]).squeeze(1)
    loss = (batch.weights * nn.functional.huber_loss(value, wanted, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for ours, theirs in zip(target.parameters(), net.parameters(), strict=True):
            ours.lerp_(theirs, 0.01)
    return (value - wanted).detach().numpy()


def main(arguments: list[str] | None = None) -> None:
    """Start runners and shards, learn, and print how episodes go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="local", help="address for ray.init; default: a cluster of this machine")
    parser.add_argument("--runners", type=int, default=2)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_000, help="over all environments")
    args = parser.parse_args(arguments)
    alone = not ray.is_initialized()
    if alone:
        own = {"include_dashboard": False, "num_cpus": args.runners + 1} if args.cluster == "local" else {}
        ray.init(address=args.cluster, log_to_driver=False, **own)
    torch.manual_seed(0)
    net = net_of()
    target, optimizer = copy.deepcopy(net), torch.optim.Adam(net.parameters(), lr=1e-3)

    schema = relive.Schema(obs=relive.Field((4,)), action=relive.Field((), "int64"))
    beta = relive.Anneal(0.4, 1.0, over=args.steps // 4)
    choices = {"item": relive.Transitions(n_step=N_STEP, gamma=GAMMA), "sampler": relive.Prioritized(beta=beta)}
    with Shards(schema, 50_000, num_envs=LANES * args.runners, shards=args.shards, seed=0, **choices) as replay:
        runners = []
        for i in range(args.runners):
            writer = replay.writer(range(LANES * i, LANES * (i + 1)))
            epsilon = 0.4 ** (1 + 7 * i / max(1, args.runners - 1))  # from curious to greedy, as in Ape-X
            runners.append(Runner.remote(writer, epsilon, seed=i))
        sent = ray.put(flattened(net))
        calls = {runner.run.remote(sent, CALL): runner for runner in runners}
        done, updates, recent = 0, 0, list[float]()
        with replay.prefetch(64, depth=4, to="torch") as batches:
            while done < args.steps:
                # The runners wait for the learner only here: a call each, and one update for every 4 steps.
                (ready,), _ = ray.wait(list(calls))
                runner = calls.pop(ready)
                recent = (recent + ray.get(ready))[-50:]
                calls[runner.run.remote(sent, CALL)] = runner
                done += CALL * LANES
                if not replay.can_sample(64):
                    continue
                for _ in range(CALL * LANES // 4):
                    batch = next(batches)
                    replay.update_priorities(batch.ids, learn(net, target, optimizer, batch))
                    updates += 1
                sent = ray.put(flattened(net))  # once, for all runners
                if done % 2_000 < CALL * LANES:
                    print(f"{done} steps, {updates} updates, mean return {np.mean(recent or [0]):.1f}")
        ray.get(list(calls))
        missing = sum(ray.get([runner.flush.remote() for runner in runners]))
        stats = replay.stats()
        print(f"{stats.added} steps in {args.shards} shards ({missing} missing), {stats.drawn} items drawn")
        for runner in runners:
            ray.kill(runner)
    if alone:
        ray.shutdown()


if __name__ == "__main__":
    main()
