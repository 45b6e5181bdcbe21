"""Workers of an `AsyncVectorEnv` that record into lanes of their own, and a writer's lanes in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import Counting
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from test_recorder import buffer_of, drawable, record

import relive
from relive._ring import kernels
from relive.errors import ArgumentError
from relive.gymnasium import Recorder
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published natively")
LANES, STEPS = 2, 25
CASES = [("fork", mode) for mode in AutoresetMode] + [("spawn", AutoresetMode.SAME_STEP)]


def counting(number: int, kind: str, writer: relive.Writer | None = None) -> Callable[[], gymnasium.Env[Any, Any]]:
    def make() -> gymnasium.Env[Any, Any]:
        env = Counting(number, kind)
        return env if writer is None else Recorder(env, writer)

    return make


def shared(alone: relive.ReplayBuffer, lanes: int) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(alone.schema, 1000 * lanes, num_envs=lanes, storage=relive.Shared())


@pytest.mark.parametrize(("context", "mode"), CASES)
def test_workers_store_what_one_process_stores(context: str, mode: AutoresetMode) -> None:
    """Check every item, with its successor, flags and id; this process never writes to the buffer."""
    kind = "dict" if context == "spawn" else "array"
    envs = SyncVectorEnv([counting(i, kind) for i in range(LANES)], autoreset_mode=mode)
    alone = buffer_of(envs)
    resets = mode is AutoresetMode.DISABLED
    record(Recorder(envs, alone), STEPS, resets)
    with shared(alone, LANES) as buffer:
        makers = [counting(i, kind, buffer.writer([i])) for i in range(LANES)]
        workers = AsyncVectorEnv(makers, context=context, autoreset_mode=mode)
        with closing(workers):
            # The environment that Gymnasium makes here, for its spaces, claimed no lane: the workers have them all.
            record(workers, STEPS, resets)
            assert buffer.stats().added == alone.stats().added > STEPS
            assert_same_batch(drawable(buffer), drawable(alone))
        for lane in range(LANES):
            with buffer.writer([lane]) as writer:
                assert writer.env_ids == (lane,)  # the workers' lanes are free again


@pytest.mark.parametrize("hold", [False, True])
def test_a_writer_of_any_lanes_records_a_vector_environment(hold: bool) -> None:
    """Check that lanes of the environment map to the writer's: subsets, cuts, refused and discarded steps."""
    mode = AutoresetMode.DISABLED
    envs = [SyncVectorEnv([counting(i, "array") for i in range(2)], autoreset_mode=mode) for _ in range(2)]
    alone = buffer_of(envs[0])
    with shared(alone, 3) as buffer, buffer.writer([2, 0]) as writer:
        for env, target in zip(envs, (alone, writer), strict=True):
            recorder = Recorder(env, target, hold=hold)
            record(recorder, 10, True)
            assert not hold or recorder.discard([0]) > 0
            recorder.reset(options={"reset_mask": np.array([hold, True])})  # in mid-episode
            with pytest.raises(relive.SchemaError):
                recorder.step(np.zeros((2, 1), np.float32), nothing=[0, 0])
            recorder.close()
        theirs, ours = drawable(alone), drawable(buffer)
        for number, lane in enumerate(writer.env_ids):
            for name in ("obs", "action", "reward", "next_obs", "discount"):
                np.testing.assert_array_equal(ours[name][ours.ids % 3 == lane], theirs[name][theirs.ids % 2 == number])
        assert len(ours.ids) == len(theirs.ids) > 10
        assert buffer.stats().cuts == alone.stats().cuts > 0


def test_a_writer_of_another_number_of_lanes_is_refused_before_it_claims_one() -> None:
    envs = SyncVectorEnv([counting(0, "array")])
    with shared(buffer_of(envs), 2) as buffer:
        both = buffer.writer([0, 1])
        with pytest.raises(ArgumentError, match=r"Expected a buffer with num_envs=1, .*, got `2`"):
            Recorder(Counting(), both)
        assert buffer.writer().env_ids == (0, 1)
