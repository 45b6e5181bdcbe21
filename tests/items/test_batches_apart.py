"""No two arrays of a batch that can be written to share memory, and nothing is worked out from what was written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from depth import LONG, some
from local import local_shards
from needs import needs

import relive
from relive._base.nests import mapped, paths
from relive._ring import kernels
from relive.testing import GO, STAY, Script, SyntheticEnvs
from relive.testing.synthetic import TERMINATED

Field = relive.Field
PLAIN = {"obs": {"body": Field(2), "camera": Field((3, 2), "uint8")}, "action": Field(2), "cost": Field()}
SCHEMAS = {
    "plain": relive.Schema(**PLAIN),
    "stacked": relive.Schema(obs={"frame": Field((2, 2), "uint8", stack=3), "arm": Field()}, action=Field((), "int64")),
    "behind": relive.Schema(obs=Field(2, stack=2, stack_axis=-1), action={"arm": Field(), "hand": Field((), "int8")}),
    "integer": relive.Schema(obs=Field((), "int32"), action=Field(), reward=Field((), "int64")),
    "kept": relive.Schema(**PLAIN, state=Field(3, every=2), other=Field((), every=2)),
    "wide": relive.Schema(obs=Field((40, 30)), action=Field(600)),  # in memory that is used again
}
ITEMS = {
    "transitions": (relive.Transitions(), set(SCHEMAS) - {"kept"}),
    "windows": (relive.Transitions(n_step=3, gamma=0.5), set(SCHEMAS) - {"integer", "kept"}),
    "chunks": (relive.Transitions(n_step=3, chunk=True), set(SCHEMAS) - {"integer", "kept"}),
    "sequences": (relive.Sequences(4, starts=2, step_ids=True), SCHEMAS),
    "burnt in": (relive.Sequences(3, burn_in=2, starts=2, step_ids=True), SCHEMAS),
    "n-step sequences": (relive.Sequences(4, n_step=2, starts=2, time_major=True), set(SCHEMAS) - {"integer"}),
    "across episodes": (relive.Sequences(4, starts=2, across_episodes=True, step_ids=True), SCHEMAS),
    "across, time first": (relive.Sequences(4, starts=2, across_episodes=True, time_major=True), SCHEMAS),
}
CASES = [(item, schema) for item, (_, schemas) in ITEMS.items() for schema in sorted(schemas)]
ON_DEVICE = [case for case in CASES if case[1] in ("plain", "stacked", "kept")]


EPISODES = [flag for length in range(1, 6) for flag in [GO] * (length - 1) + [TERMINATED]]


def lived(schema: relive.Schema, flags: list[int]) -> dict[str, Any]:
    """Make 60 steps of two lanes, `[2, 60, ...]`."""
    return SyntheticEnvs(schema, 2).rollout([0, 1], 60, Script(flags, [STAY], give_next=True))


def filled(item: relive.Item, schema: relive.Schema) -> relive.ReplayBuffer:
    """Fill a buffer with episodes of 1 to 5 steps."""
    buffer = relive.ReplayBuffer(schema, 120, num_envs=2, item=item, sampler=relive.Prioritized(), seed=0)
    buffer.extend(**lived(schema, EPISODES))
    return buffer


def arrays(batch: Any) -> dict[str, Any]:
    return {".".join(path): array for path, array in paths(batch)}


def spoil(array: Any) -> None:
    """Change every entry, whatever array or tensor it is."""
    array[...] = array == 0


def assert_apart(made: Any, right: dict[str, np.ndarray]) -> int:
    """Write to one array after the other, each time of a new batch; returns how many could be written to.

    Args:
        made: Makes the batch.
        right: Its arrays.
    """
    written = 0
    for name in right:
        batch = made()
        target = dict(paths(batch))[tuple(name.split("."))]  # nothing else has been looked at
        if not getattr(getattr(target, "flags", None), "writeable", True):
            with pytest.raises(ValueError, match="read-only"):
                target[...] = 0
            continue
        spoil(target)
        written += 1
        for other, array in arrays(batch).items():
            if other != name:
                assert np.asarray(array).tobytes() == right[other].tobytes(), f"{other}, after a write to {name}"
    return written


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(("item", "schema"), CASES if LONG else CASES[::2])
def test_numpy(item: str, schema: str) -> None:
    """Check drawn batches, which can be written to as those that are read; `reward` always can."""
    buffer = filled(ITEMS[item][0], SCHEMAS[schema])
    batch = buffer.sample(12)
    writable = {name for name, array in arrays(batch).items() if array.flags.writeable}
    assert writable == {name for name, array in arrays(buffer.read(batch.ids)).items() if array.flags.writeable}
    assert writable >= {"reward", "discount", "ids", "weights"}
    state = buffer.rng.bit_generator.state

    def drawn() -> relive.Batch:
        buffer.rng.bit_generator.state = state
        return buffer.sample(12)

    right_of_draw = {name: array.copy() for name, array in arrays(drawn()).items()}
    assert assert_apart(drawn, right_of_draw) == len(writable)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(("item", "schema"), CASES if LONG else CASES[1::2])
def test_torch(item: str, schema: str) -> None:
    """Check that each tensor can be written to, made one by one or all at once; read-only arrays stay unchanged."""
    needs("torch")
    buffer = filled(ITEMS[item][0], SCHEMAS[schema])
    batch = buffer.sample(12)
    for make in (lambda read: read.torch(), lambda read: read.torch("cpu")):
        right = {name: array.copy() for name, array in arrays(buffer.read(batch.ids)).items()}
        assert assert_apart(lambda make=make: make(buffer.read(batch.ids)), right) == len(right)
        source = buffer.read(batch.ids)
        for tensor in arrays(make(source)).values():
            spoil(tensor)
        sealed = {name: array for name, array in arrays(source).items() if not array.flags.writeable}
        assert {name: array.tobytes() for name, array in sealed.items()} == {
            name: right[name].tobytes() for name in sealed
        }


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("item", ["sequences", "burnt in", "across episodes", "n-step sequences", "windows"])
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_prefetched(item: str, to: str) -> None:
    """Check batches of a thread likewise, with a function that changes them."""
    if to == "torch":
        needs("torch")

    def change(batch: relive.Batch, _: np.random.Generator) -> relive.Batch:
        batch.reward[...] = -1
        return relive.Batch({**batch, "next_obs": batch.next_obs.map(np.copy)})

    buffer = filled(ITEMS[item][0], SCHEMAS["plain"])
    state = buffer.rng.bit_generator.state

    def first() -> relive.Batch:
        buffer.rng.bit_generator.state = state
        with buffer.prefetch(5, depth=1, to=to, transform=change) as batches:
            return next(batches)

    right = {name: np.array(array) for name, array in arrays(first()).items()}
    assert (right["reward"] == -1).all()
    assert "next_obs.body" in right
    assert assert_apart(first, right) >= 8


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
def test_tensors_of_a_batch_stay_what_they_were_made() -> None:
    """Check that a tensor of a read-only array is made once, also for `map` and pickles."""
    needs("torch")
    import pickle

    tensors = filled(relive.Sequences(4), SCHEMAS["plain"]).sample(3).torch()
    tensors.obs.body.zero_()
    assert tensors.obs.body is tensors["obs"]["body"]
    for other in (tensors.map(lambda tensor: tensor.double()), pickle.loads(pickle.dumps(tensors)), tensors.torch()):
        assert not other.obs.body.any()
        assert other.next_obs.body.any()
    named = relive.Batch({"keys": np.arange(3.0)})
    named["keys"].flags.writeable = False
    twice = named.torch()
    twice["keys"].mul_(0)
    assert not twice["keys"].any()
    assert named["keys"].any()


@pytest.mark.skipif(not kernels.is_native(), reason="NumPy's kernels make each field by itself")
def test_a_device_moves_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needs("torch")
    batch = filled(relive.Sequences(4), SCHEMAS["plain"]).sample(3)
    moved: list[tuple[int, ...]] = []
    to = torch.Tensor.to

    def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        moved.append(tuple(tensor.shape))
        return to(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", counted)
    tensors = batch.torch("cpu")
    monkeypatch.undo()
    of_plans = [(name, array.nbytes) for name, array in arrays(batch).items() if name.startswith("all_")]
    assert sorted(shape[0] for shape in moved if shape[0] > 3) == sorted(nbytes for _, nbytes in of_plans)
    assert tensors.obs.body.is_contiguous()


def places_of(array: Any) -> np.ndarray:
    """Where in memory the elements of a tensor or an array begin, one entry for each element that it has."""
    shape, size = tuple(array.shape), array.element_size() if hasattr(array, "element_size") else array.itemsize
    strides = [s * size for s in array.stride()] if hasattr(array, "stride") else array.strides
    begin = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    offsets = (np.arange(n).reshape(-1, *[1] * (len(shape) - k - 1)) * strides[k] for k, n in enumerate(shape))
    return begin + sum(offsets, np.zeros(shape, np.int64)).reshape(-1)


def assert_no_memory_is_shared(batch: Any) -> None:
    """Neither by two tensors, nor by two elements of one."""
    found = np.concatenate([places_of(array) for array in arrays(batch).values()])
    assert len(found) == len(np.unique(found)), sorted(arrays(batch))


def filled_device(item: relive.Item, schema: relive.Schema, sampler: relive.samplers.Sampler) -> Any:
    torch, steps = needs("torch"), lived(schema, [GO])
    device = relive.DeviceBuffer(schema, 120, num_envs=2, item=item, sampler=sampler, device="cpu", seed=0)
    for t in range(60):
        device.add(**mapped(lambda array, t=t: torch.from_numpy(array[:, t].copy()), steps), continues=True)
    return device


@pytest.mark.parametrize(("item", "schema"), some(ON_DEVICE, 6))
def test_device(item: str, schema: str) -> None:
    needs("torch")
    settings = ITEMS[item][0]
    host = filled(settings, SCHEMAS[schema])
    for sampler in (relive.Uniform(), relive.Prioritized()):
        device = filled_device(settings, SCHEMAS[schema], sampler)
        batch = device.sample(9)
        assert_no_memory_is_shared(batch)
        assert_no_memory_is_shared(device.read(batch.ids))
        assert_no_memory_is_shared(relive.Mixture(device, host, share=0.5).sample(8))


@pytest.mark.parametrize("item", [relive.Transitions(), *(ITEMS[name][0] for name in ("sequences", "burnt in"))])
def test_shards(item: Any) -> None:
    """Check like one buffer's: arrays that show the same steps are read-only."""
    shards, _ = local_shards(SCHEMAS["plain"], 120, num_envs=2, shards=2, item=item)
    alone = filled(item, SCHEMAS["plain"])
    with shards:
        with shards.writer() as writer:
            writer.extend(**lived(SCHEMAS["plain"], EPISODES))
        batch = shards.sample(12)
        ours, theirs = (
            {name for name, array in arrays(each).items() if array.flags.writeable}
            for each in (batch, alone.sample(12))
        )
        assert ours == theirs
        right = {name: array.copy() for name, array in arrays(batch).items()}
        for name in sorted(ours):
            spoil(arrays(batch)[name])
            right[name] = arrays(batch)[name].copy()
            assert all(array.tobytes() == right[other].tobytes() for other, array in arrays(batch).items()), name


@pytest.mark.parametrize("item", ["transitions", "sequences"])
@pytest.mark.parametrize("schema", ["plain", "stacked"])
def test_tensors_are_attributes_at_once(item: str, schema: str) -> None:
    """Check that up to sixteen are made together; what PyTorch lacks waits for a look."""
    needs("torch")
    batch = filled(ITEMS[item][0], SCHEMAS[schema]).sample(3)
    made, tensors = vars(batch.torch()), batch.torch()
    assert set(made) == {n for n, a in vars(batch).items() if a.flags.carray}
    assert {"reward", "ids", "weights"} <= set(made)
    assert all(tensors[name] is getattr(tensors, name) is vars(tensors)[name] for name in made)
    assert not vars(relive.Batch({f"f{i}": np.zeros(2) for i in range(17)}).torch())
    strange = {"dates": np.zeros(2, "M8[s]"), "swapped": np.zeros(2, ">f4"), "wide": np.zeros(2, np.longdouble)}
    strange |= {"back": np.zeros(2)[::-1], "keys": np.zeros(2), "bits": np.zeros(2, np.dtype("u2", metadata={"a": 1}))}
    assert not vars(relive.Batch(strange).torch())
