"""Actors in processes of their own, one learner, a clean end: python actors_and_learner.py [UPDATES]."""

import multiprocessing
import sys

import gymnasium as gym
import numpy as np

import relive

ACTORS = 2


def act(writer: relive.Writer, weights, stop) -> None:
    """Step an environment with the newest weights until the learner has what it wants."""
    env, (lane,) = gym.make("CartPole-v1"), writer.env_ids
    rng = np.random.default_rng(lane)
    obs, _ = env.reset(seed=lane)
    try:
        while not stop.is_set():
            policy = np.frombuffer(weights)  # of the learner, in shared memory
            action = int(obs @ policy > 0) if rng.random() > 0.2 else int(rng.integers(2))
            next_obs, reward, terminated, truncated, _ = env.step(action)
            flags = {"terminated": terminated, "truncated": truncated}
            writer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **flags)  # waits for the learner
            obs = env.reset()[0] if terminated or truncated else next_obs
    except relive.BufferClosed:
        pass  # the learner ended first
    finally:
        writer.close()


def main() -> None:
    """Start the actors, learn, and end them."""
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    context = multiprocessing.get_context("spawn")  # safe with threads and with CUDA
    stop, weights = context.Event(), context.RawArray("d", 4)
    schema = relive.Schema(obs=relive.Field(4), action=relive.Field((), "int64"))
    limiter = relive.RateLimiter(samples_per_insert=8, min_size=100)  # keeps actors and learner in step
    with relive.ReplayBuffer(
        schema, 50_000, num_envs=ACTORS, storage=relive.Shared(), limiter=limiter, seed=0
    ) as buffer:
        actors = [context.Process(target=act, args=(buffer.writer([k]), weights, stop)) for k in range(ACTORS)]
        for actor in actors:
            actor.start()
        for _ in range(updates):
            batch = buffer.sample(64)  # waits for the actors
            sign = np.where(batch.action == 1, 1.0, -1.0) * np.where(batch.terminated, -1.0, 1.0)
            np.frombuffer(weights)[:] += 1e-3 * (sign[:, None] * batch.obs).mean(axis=0)
        stop.set()
    for actor in actors:
        actor.join()
    print(f"{updates} updates, actors ended with {[actor.exitcode for actor in actors]}")


if __name__ == "__main__":
    main()
