"""Fields of bfloat16 in every storage, in saves and as tensors; test_native_path.py has the ways in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

import relive
from relive._ring import kernels as _kernels
from relive.checkpoints.inspection import verify
from relive.testing.agreement import assert_same_batch

ml_dtypes = needs("ml_dtypes")

BF16 = np.dtype(ml_dtypes.bfloat16)
SCHEMA = relive.Schema(
    obs={"state": relive.Field((3,), "bfloat16"), "frames": relive.Field((2,), BF16, stack=2)},
    action=relive.Field((2,), ml_dtypes.bfloat16),
    reward=relive.Field((), "bfloat16"),
    hidden=relive.Field((4,), "bfloat16", every=2),
)
STEPS, ROWS = 30, 20


@pytest.fixture(params=["ram", "shared", "mapped"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param != "ram":
        pytest.importorskip("relive._ring._native")
    made = {"ram": relive.Ram, "shared": relive.Shared, "mapped": lambda: relive.Mapped(tmp_path / "ring")}
    return made[request.param]()


def numbers(t: int, count: int) -> np.ndarray:
    """Make numbers of which bfloat16 keeps half of the digits."""
    return np.linspace(t, t + 1, count) / 7


def step(t: int) -> dict[str, Any]:
    def obs(t: int) -> dict[str, Any]:
        frames = np.stack([numbers(t - 1 if t % 9 else t, 2), numbers(t, 2)])
        return {"state": numbers(t, 3).astype(BF16), "frames": frames if t % 9 else frames * [[0], [1]]}

    ended = t % 9 == 8
    last = {"state": numbers(t + 1, 3), "frames": np.stack([numbers(t, 2), numbers(t + 1, 2)])}
    return {
        "obs": obs(t), "next_obs": last if ended else obs(t + 1), "terminated": ended, "truncated": False,
        "action": numbers(t, 2).astype("float32"), "reward": t / 3, "hidden": numbers(t, 4),
    }  # fmt: skip


def filled(storage: Any, **choices: Any) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(SCHEMA, ROWS, item=relive.Sequences(2, starts=2), storage=storage, seed=0, **choices)
    for t in range(STEPS):
        buffer.add(**step(t))
    return buffer


def check(batch: relive.Batch) -> None:
    """Check that every number is the nearest bfloat16 of the given one."""
    for row in range(len(batch.ids)):
        for i in np.flatnonzero(batch.mask[row]):
            t = round(float(batch.reward[row, i]) * 3)
            assert batch.reward.dtype == batch.action.dtype == batch.hidden.dtype == BF16
            np.testing.assert_array_equal(batch.action[row, i], numbers(t, 2).astype(BF16))
            np.testing.assert_array_equal(batch.obs["state"][row, i], numbers(t, 3).astype(BF16))
            np.testing.assert_array_equal(batch.next_obs["state"][row, i], numbers(t + 1, 3).astype(BF16))
            np.testing.assert_array_equal(batch.obs["frames"][row, i, 1], numbers(t, 2).astype(BF16))


def test_what_is_stored_is_drawn(storage: Any, tmp_path: Path) -> None:
    """Check also after a save, from another process's handle, and by another item."""
    if not _kernels.is_native() and not isinstance(storage, relive.Ram):
        pytest.skip("several processes need the extension")
    with filled(storage) as buffer:
        assert buffer.stats().slow_adds == (0 if _kernels.is_native() else STEPS)
        check(buffer.sample(64))
        if not isinstance(storage, relive.Ram):
            other = relive.open(storage.file, item=relive.Sequences(2, starts=2), seed=1)
            check(other.sample(16))
            assert other.schema == SCHEMA
            other.close()
        buffer.save(tmp_path / "saved")
        loaded = relive.load(tmp_path / "saved")
        assert loaded.schema == SCHEMA
        assert_same_batch(buffer.sample(32), loaded.sample(32))
        assert verify(tmp_path / "saved") == []


def test_saves_have_the_type_of_safetensors(tmp_path: Path) -> None:
    filled(relive.Ram()).save(tmp_path)
    found = {
        tensor["dtype"]
        for path in tmp_path.glob("steps-*.safetensors")
        for name, tensor in header(path).items()
        if "action" in name
    }
    assert found == {"BF16"}


def header(path: Path) -> dict[str, Any]:
    import json

    raw = path.read_bytes()
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


def test_tensors_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    batch = filled(relive.Ram()).sample(16)
    tensors = batch.torch()
    assert tensors.action.dtype == tensors.obs["state"].dtype == torch.bfloat16
    np.testing.assert_array_equal(tensors.action.float().numpy(), batch.action.astype(np.float32))
    tensors.reward.zero_()
    assert not batch.reward.any()
    assert batch.action.any()
    tensors.action.zero_()
    assert batch.action.any()  # read-only, so the tensor is a copy


def test_arrays_of_jax() -> None:
    jax = needs("jax")
    batch = filled(relive.Ram()).sample(16)
    assert batch.jax().action.dtype == jax.numpy.bfloat16
    np.testing.assert_array_equal(np.asarray(batch.jax().action), batch.action)
    buffer = filled(relive.Ram())
    buffer.add(**{**step(STEPS), "action": jax.numpy.ones(2, jax.numpy.bfloat16)})


def test_tensors_are_taken() -> None:
    """Give tensors as steps, TD errors and priorities."""
    torch = pytest.importorskip("torch")
    buffer = filled(relive.Ram(), sampler=relive.Prioritized())
    given = {**step(STEPS), "action": torch.tensor([0.1, 0.2]).bfloat16(), "priority": torch.ones(1).bfloat16()}
    buffer.add(**given)
    batch = buffer.sample(4)
    buffer.update_priorities(batch.ids, torch.full((4,), 0.3, requires_grad=True).bfloat16())
    wanted = float(torch.tensor(0.3).bfloat16()) + 1e-6
    np.testing.assert_allclose(buffer.priorities(batch.ids), wanted, rtol=1e-6)
    buffer.update_priorities(batch.ids, np.full(4, 0.5, BF16))
    with pytest.raises(relive.SchemaError, match=r"bfloat16.*can hold, got `3\.4e\+38`"):
        buffer.add(**{**step(STEPS + 1), "action": [0.0, 3.4e38]})


@pytest.mark.parametrize("call", ["relive.Field((), 'bfloat16')", "relive.load('saved')"])
def test_without_the_package_its_extra_is_named(call: str, tmp_path: Path) -> None:
    filled(relive.Ram()).save(tmp_path / "saved")
    program = f"import sys; sys.modules['ml_dtypes'] = None; import relive; {call}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "MissingExtra: Expected the package `ml_dtypes`" in done.stderr, done.stderr
    assert "relive[bfloat16]" in done.stderr
