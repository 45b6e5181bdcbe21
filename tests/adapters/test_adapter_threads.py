"""One thread adds to an adapter, others draw and update priorities: every item is what happened, and no call fails."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from depth import LONG, pairs
from forking import forked
from needs import needs

import relive

SECONDS = float(os.environ.get("RELIVE_THREAD_SECONDS", "1" if LONG else "0.2"))
SIZE, LANES, ENDS = 300, 2, 7


class Adapter(NamedTuple):
    """The way to add step t of each lane, and to draw obs, reward, next_obs, done, and an update."""

    add: Callable[[int], Any]
    draw: Callable[[], tuple[Any, Any, Any, Any, Callable[[], Any]]]


def sb3() -> Adapter:
    needs("stable_baselines3")
    from gymnasium import spaces

    from relive.sb3 import ReplayBuffer

    box = spaces.Box(-1e9, 1e9, (1,), np.float32)
    buffer = ReplayBuffer(SIZE, box, box, "cpu", n_envs=LANES, sampler=relive.Prioritized())

    def add(t: int) -> None:
        obs = codes(t)[:, None]
        buffer.add(obs, obs + 1, obs, codes(t), np.full(LANES, t % ENDS == ENDS - 1), [{}] * LANES)

    def draw() -> Any:
        data = buffer.sample(32)
        found = (data.observations, data.rewards, data.next_observations, data.dones)
        return *(part.numpy()[:, 0] for part in found), lambda: buffer.update_priorities(data.ids, np.ones(32))

    return Adapter(add, draw)


def tianshou() -> Adapter:
    needs("tianshou")
    from tianshou.data import Batch

    from relive.tianshou import PrioritizedVectorReplayBuffer

    buffer = PrioritizedVectorReplayBuffer(SIZE, LANES, alpha=0.6, beta=0.4)

    def add(t: int) -> None:
        over = np.full(LANES, t % ENDS == ENDS - 1)
        step = {"obs": codes(t), "act": codes(t), "rew": codes(t), "obs_next": codes(t) + 1}
        buffer.add(Batch(**step, terminated=over, truncated=over & False, info=Batch()))

    def draw() -> Any:
        data, places = buffer.sample(32)
        return data.obs, data.rew, data.obs_next, data.terminated, lambda: buffer.update_weight(places, np.ones(32))

    return Adapter(add, draw)


def torchrl() -> Adapter:
    torch = pytest.importorskip("torch")
    needs("torchrl")
    from tensordict import TensorDict

    from relive.torchrl import TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(SIZE, batch_size=32, sampler=relive.Prioritized())

    def add(t: int) -> None:
        obs = torch.from_numpy(codes(t))[:, None]
        over = torch.full((LANES, 1), t % ENDS == ENDS - 1)
        after = {"observation": obs + 1, "reward": obs, "done": over, "terminated": over}
        buffer.add(TensorDict({"observation": obs, "next": after}, [LANES]))

    def draw() -> Any:
        data = buffer.sample()
        after = data["next"]
        found = (data["observation"], after["reward"], after["observation"], after["terminated"])
        return *(part.numpy()[:, 0] for part in found), lambda: buffer.update_priority(data["index"], torch.ones(32))

    return Adapter(add, draw)


def codes(t: int) -> np.ndarray:
    """Return one number for each lane's step, float32."""
    return np.arange(LANES, dtype=np.float32) * 5_000_000 + t


def check(drawn: tuple[Any, Any, Any, Any, Any]) -> None:
    obs, reward, next_obs, done, _ = drawn
    np.testing.assert_array_equal(obs, reward)
    np.testing.assert_array_equal(next_obs, obs + 1)
    np.testing.assert_array_equal(done, obs.astype(np.int64) % 5_000_000 % ENDS == ENDS - 1)


@pytest.mark.parametrize(("make", "forks"), pairs([sb3, tianshou, torchrl], [8, 0, 8]))
def test_adding_beside_drawing(make: Callable[[], Adapter], forks: int) -> None:
    adapter = make()
    for t in range(50):
        adapter.add(t)
    check(adapter.draw())  # imports what it needs: a fork beside an import in a thread waits for it for ever
    start, errors, counts = time.monotonic(), [], [50, 0]

    def goes_on() -> bool:
        spent = time.monotonic() - start
        return not errors and (spent < SECONDS or (counts[1] <= 10 and spent < 60))

    def adding() -> None:
        while goes_on():
            adapter.add(counts[0])
            counts[0] += 1

    def drawing() -> None:
        while goes_on():
            drawn = adapter.draw()
            check(drawn)
            drawn[-1]()
            counts[1] += 1

    def caught(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caught, args=(job,)) for job in (adding, drawing, drawing)]
    for thread in threads:
        thread.start()
    for _ in range(forks):
        with forked(lambda: check(adapter.draw())):
            time.sleep(SECONDS / forks / 2)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert counts[1] > 10
