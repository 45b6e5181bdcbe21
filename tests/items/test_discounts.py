"""Steps that have discounts of their own, through everything that stores and folds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local import local_shards

import relive
from relive._ring import kernels as _kernels
from relive.testing.agreement import assert_same_batch

F = relive.Field
SCHEMA = relive.Schema(obs=F(), action=F(), discount=F())
GAMMA, DURATIONS = 0.9, np.array([1.0, 3.0, 2.0, 5.0])
native = pytest.mark.skipif(_kernels.active().__name__ != "relive._ring._native", reason="needs the extension")


def steps(discount: Any, ended: str = "truncated") -> dict[str, Any]:
    """Make four steps of an episode, with rewards of 1."""
    last = np.arange(4) == 3
    flags = {"terminated": last & (ended == "terminated"), "truncated": last & (ended == "truncated")}
    return {
        "obs": np.arange(4.0), "action": np.zeros(4), "reward": np.ones(4), "next_obs": np.arange(1.0, 5.0),
        "discount": discount, **flags,
    }  # fmt: skip


def made(n_step: int = 3, **choices: Any) -> relive.ReplayBuffer:
    choices = {"item": relive.Transitions(n_step=n_step, gamma=GAMMA), "seed": 0, **choices}
    return relive.ReplayBuffer(SCHEMA, 40, **choices)


@pytest.mark.parametrize("several", [True, False])
def test_actions_of_different_durations(several: bool) -> None:
    """Check durations of 1, 3 and 2: a reward of 1 + .9 + .9**4, and a discount of .9**6."""
    buffer, data = made(), steps(GAMMA ** (DURATIONS - 1))
    if several:
        buffer.extend(**data)
    else:
        for t in range(4):
            buffer.add(**{name: values[t] for name, values in data.items()})
    batch = buffer.read(range(4))
    assert batch.reward == pytest.approx([2.5561, 1 + 0.9**3 + 0.9**5, 1 + 0.9**2, 1.0])
    assert batch.discount == pytest.approx([0.9**6, 0.9**10, 0.9**7, 0.9**5])
    assert batch.discount.dtype == batch.reward.dtype == np.float32
    assert batch.steps.tolist() == [3, 3, 2, 1]
    assert buffer.column("discount")[0, :4] == pytest.approx(GAMMA ** (DURATIONS - 1))


BAD = [-0.1, 1.1, np.nan, np.inf, 2]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("several", [True, False])
def test_other_discounts_are_refused(bad: float, several: bool) -> None:
    buffer = made()
    discount = np.array([1.0, bad, 0.5, 1.0])
    data = steps(discount) if several else {name: values[1] for name, values in steps(discount).items()}
    with pytest.raises(relive.SchemaError) as caught:
        (buffer.extend if several else buffer.add)(**data)
    more = " (1 of 4)" if several else ""
    assert str(caught.value) == f"Expected discounts >= 0 and <= 1, got `{float(bad)}`{more} - at `discount`"
    assert len(buffer) == 0


@pytest.mark.parametrize(
    "field",
    [F(2), F((), "int64"), F((), "complex64"), F(every=1), F(stack=2), F(writable=True), {"a": F()}],
    ids=repr,
)
def test_a_field_of_another_kind_is_refused(field: Any) -> None:
    with pytest.raises(relive.SchemaError, match="discount`"):
        relive.Schema(obs=F(), action=F(), discount=field)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_any_float_will_do(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    schema = relive.Schema(obs=F(), action=F(), discount=F((), dtype))
    buffer = relive.ReplayBuffer(schema, 40, item=relive.Transitions(n_step=2, gamma=0.5), seed=0)
    buffer.extend(**steps([1.0, 0.5, 0.25, 0.125]))
    assert buffer.read(range(4)).discount.tolist() == [0.125, 0.03125, 0.0078125, 0.0625]


def test_schemas_from_spaces_and_examples() -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    schema = relive.Schema.from_spaces(spaces.Box(0, 1, (2,)), spaces.Discrete(2), discount=F())
    assert schema.discount == F()
    # A step of dm_env: its discount is a float, 0 in a terminal state.
    like = relive.Schema.from_example({"obs": np.zeros(2, "float32"), "action": 1, "reward": 0.5, "discount": 1.0})
    assert like == schema
    assert relive.Schema(obs=F(), action=F()).discount is None


def test_ids_of_steps_have_a_name_of_their_own() -> None:
    schema = relive.Schema(obs=F(), action=F(), discount=F(), step_ids=F())
    relive.ReplayBuffer(schema, 40, item=relive.Sequences(4))
    relive.ReplayBuffer(schema, 40, item=relive.Transitions(n_step=3))
    with pytest.raises(relive.ArgumentError, match="a schema without a field `step_ids`"):
        relive.ReplayBuffer(schema, 40, item=relive.Sequences(4, n_step=2))


def test_devices_refuse_them() -> None:
    pytest.importorskip("torch")
    with pytest.raises(relive.ArgumentError, match="a schema without `discount`"):
        relive.DeviceBuffer(SCHEMA, 40, device="cpu")


@native
def test_writers_and_readers_have_them(tmp_path: Path) -> None:
    with made(num_envs=2, storage=relive.Mapped(tmp_path / "ring")) as buffer, buffer.writer([1]) as writer:
        writer.extend(**steps(GAMMA ** (DURATIONS - 1)))
        for bad in BAD:
            with pytest.raises(relive.SchemaError, match="Expected discounts"):
                writer.extend(**steps([1.0, bad, 1.0, 1.0]))
        batch = buffer.sample(30)
        with relive.open(tmp_path / "ring", seed=1) as reader:
            assert_same_batch(reader.read(batch.ids), buffer.read(batch.ids))
        first = batch.obs == 0
        assert batch.discount[first] == pytest.approx([0.9**6] * first.sum())
        assert writer.add(**{name: values[:1] for name, values in steps(np.ones(4)).items()}).shape == (1,)


def test_shards_fold_them() -> None:
    item = relive.Sequences(3, n_step=2, gamma=GAMMA)
    shards, _ = local_shards(SCHEMA, 400, num_envs=2, item=item, seed=3)
    data = {name: np.stack([values] * 2) for name, values in steps(GAMMA ** (DURATIONS - 1)).items()}
    with shards.writer() as writer:
        writer.extend(**data)
        with pytest.raises(relive.SchemaError, match="Expected discounts"):
            writer.extend(**data | {"discount": data["discount"] - 1})
    batch = shards.sample(20)
    first = batch.obs[:, 0] == 0
    assert first.any()
    for row in np.flatnonzero(first):
        assert batch.discount[row] == pytest.approx([0.9**4, 0.9**5, 0.9**7])
        assert batch.reward[row] == pytest.approx([1.9, 1 + 0.9**3, 1 + 0.9**2])


@pytest.mark.filterwarnings("error")
def test_what_comes_behind_a_window_does_not_matter() -> None:
    """Check with infinite rewards of the next episode in rows after the window."""
    for item in (relive.Transitions(n_step=3, gamma=GAMMA), relive.Sequences(3, n_step=3, gamma=GAMMA)):
        buffer, data = made(item=item), steps([0.0, 0.5, 0.0, 0.5], ended="terminated")
        buffer.extend(**data)
        buffer.extend(**data | {"reward": np.full(4, np.inf)})
        batch = buffer.read([3])
        assert batch.reward.ravel()[0] == 1.0
        assert batch.discount.ravel()[0] == 0.0
