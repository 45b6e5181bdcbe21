"""Two ways to the same result: native and NumPy kernels, the fast path and the general one."""

from __future__ import annotations

import importlib.util
from itertools import product
from typing import Any

import numpy as np
import pytest
from depth import pairs
from hypothesis import given, settings
from programs import Call, assert_same_results, programs, run

import relive
from relive._base.nests import mapped
from relive._ring import kernels
from relive.testing._lives import BACK_ENDS
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
# Where relive was installed without a compiler, a program must at least repeat itself.
FIRST = "native" if importlib.util.find_spec("relive._ring._native") else "numpy"


@given(programs())
def test_both_back_ends_agree(program: Any) -> None:
    """Check for the same ids, bytes, weights, and refusals in the same words."""
    assert_same_results(run(FIRST, *program), run("numpy", *program))


@given(programs(spoiled=False))
@settings(max_examples=settings().max_examples // 2)
def test_the_fast_and_the_general_way_in_agree(program: Any) -> None:
    """Check canonical arrays of all lanes, which may take a short cut, against lists and named lanes, which cannot."""
    config, calls = program
    ours, theirs = run_here(config, calls), run_here(config, [by_the_general_way(config, call) for call in calls])
    assert_same_results(ours, theirs)


def run_here(config: Any, calls: list[Call]) -> list[Any]:
    return run(kernels.active().__name__.rpartition("_")[2].replace("kernels_", ""), config, calls)


def by_the_general_way(config: Any, call: Call) -> Call:
    name, arguments = call
    if name not in ("add", "extend"):
        return call
    lanes = arguments.get("env_ids", list(range(config.num_envs)))
    rest = {key: value for key, value in arguments.items() if key != "env_ids"}
    return name, {**mapped(lambda value: value.tolist(), rest), "env_ids": lanes}


@pytest.mark.parametrize(
    ("n_step", "ring", "chunk"),
    [(n, *form) for n, form in pairs([1, 3, 8, 9, 40], [*product([(1, 70), (3, 70), (2, 260)], [False, True])])],
)
def test_both_back_ends_find_the_same_windows(n_step: int, ring: tuple[int, int], chunk: bool) -> None:
    """Check marks that are read together and one by one: at ends, blocks' borders and after laps."""
    lanes, rows = ring
    schema = relive.Schema(obs=relive.Field((), np.float64), action=relive.Field())
    batches = []
    for back_end in BACK_ENDS:
        rng = np.random.default_rng(n_step)
        with kernels.use(back_end):
            item = relive.Transitions(n_step=n_step, gamma=0.9, chunk=chunk)
            buffer = relive.ReplayBuffer(schema, lanes * rows, num_envs=lanes, item=item, seed=0)
            for length in (rows // 2, rows, rows):
                ends = rng.random((2, lanes, length)) < rng.choice([0.0, 0.02, 0.2], (2, lanes, 1))
                obs, action, reward = rng.standard_normal((3, lanes, length))
                reward[reward < 0.5] *= 0.0  # of either sign
                buffer.extend(obs=obs, action=action, reward=reward, terminated=ends[0], truncated=ends[1] > ends[0])
                buffer.cut([lanes - 1])
                batches.append(buffer.sample(300))
    for ours, theirs in zip(batches[:3], batches[3:], strict=False):
        assert_same_batch(ours, theirs)


@pytest.mark.parametrize("size", [1024, 1031, 1500])
def test_batches_larger_than_the_caches_have_the_same_bytes(size: int) -> None:
    """Check rows that begin and end within a line, and so are written past the caches only in part."""
    item = relive.Field((size,), np.uint8)
    batches = []
    for back_end in BACK_ENDS:
        with kernels.use(back_end):
            buffer = relive.ReplayBuffer(relive.Schema(obs=item, action=relive.Field()), 40, seed=0)
            obs = np.random.default_rng(0).integers(0, 256, (1, 31, size), np.uint8)
            zeros = np.zeros((1, 30), np.float32)
            buffer.extend(obs=obs[:, :-1], action=zeros, reward=zeros, next_obs=obs[:, 1:],
                          terminated=zeros > 0, truncated=zeros > 0)  # fmt: skip
            batches.append(buffer.sample((16 << 20) // (2 * size) + 1))
    assert_same_batch(*batches)


@pytest.mark.parametrize("n_step", [1, 3, 12])
def test_both_back_ends_write_the_usual_steps_of_many_lanes(n_step: int) -> None:
    """Check also steps that end their episode, and observations that are not the announced next ones."""
    lanes, found, field = 130, [], relive.Field  # of so many lanes, sums are kept
    for module in ("numpy", FIRST):
        rng = np.random.default_rng(n_step)
        with kernels.use(module):
            item = relive.Transitions(n_step=n_step)
            schema = relive.Schema(obs={"a": field(17), "b": field(2)}, action=field(3), note=field(1, "uint8"))
            buffer = relive.ReplayBuffer(schema, lanes * 13, num_envs=lanes, item=item, seed=0)
        ring, seen, parts = buffer._core.ring, [], lambda x: {"a": x[:, :17], "b": x[:, 17:]}
        obs = rng.random((lanes, 19), dtype="float32")
        for _ in range(60):
            which = np.flatnonzero(rng.random(lanes) < 0.9)
            after = rng.random((len(which), 19), dtype="float32")
            step = {"obs": parts(obs[which]), "next_obs": parts(after), "action": after[:, :3], "reward": after[:, 3]}
            step |= {"note": rng.integers(0, 9, (len(which), 1), "uint8"), "truncated": np.zeros(len(which), bool)}
            seen.append(buffer.add(**step, terminated=rng.random(len(which)) < 0.05, env_ids=which))
            obs[which] = after
            obs[which[rng.random(len(which)) < 0.02], rng.choice([0, 18])] += 1
            seen += [ring.counters.copy(), ring.marks.copy(), [len(buffer), buffer.stats().added]]
        found.append([*seen, *(column.copy() for column in ring.columns)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
