"""Arrays that hide values are refused wherever numbers are taken: as plain ones they have values that were missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local import local_shards

import relive
from relive._buffer import drawing
from relive._ring import kernels as _kernels

WORDS = "Expected an array without masked elements, got a masked arr"
L, T = 2, 4


def hiding(values: object) -> np.ma.MaskedArray:
    """Make a masked array whose last element is hidden."""
    array = np.asarray(values)
    mask = np.zeros(array.shape, bool)
    mask.flat[-1] = True
    return np.ma.masked_array(array, mask)


def listed(values: object) -> list[Any]:
    """Make a list whose last element is a masked array, or the masked constant."""
    array = hiding(values)
    return [*np.asarray(values)[:-1], array[-1]]


def whole(values: object) -> np.ma.MaskedArray:
    """Make a masked array that hides nothing."""
    return np.ma.masked_array(np.asarray(values), np.zeros(np.shape(values), bool))


def schema() -> relive.Schema:
    extra = relive.Field((), "float32", writable=True)
    return relive.Schema(obs=relive.Field((3,)), action=relive.Field((), "int64"), value=extra)


def steps(*lead: int) -> dict[str, Any]:
    ones, no = np.ones(lead), np.zeros(lead, bool)
    obs = np.ones((*lead, 3))
    step = {"obs": obs, "action": ones.astype(int), "reward": ones, "next_obs": obs}
    return step | {"terminated": no, "truncated": no, "value": ones}


def made(sampler: Any = None, **choices: Any) -> relive.ReplayBuffer:
    sampler = relive.Prioritized(eps=0.0) if sampler is None else sampler
    buffer = relive.ReplayBuffer(schema(), 20, num_envs=L, sampler=sampler, seed=0, **choices)
    for _ in range(3):
        buffer.add(**steps(L))
    return buffer


IDS, ERRORS = np.arange(2), np.array([5.0, 9.0])
# What is called with one argument that hides a value, and a plain one to compare with.
OF_BUFFERS: dict[str, tuple[Any, Callable[[relive.ReplayBuffer, Any], Any]]] = {
    "read": (IDS, lambda b, x: b.read(x)),
    "priorities": (IDS, lambda b, x: b.priorities(x)),
    "follow: ids": (IDS, lambda b, x: b.follow(x, 1)),
    "follow: steps": (np.ones(2, int), lambda b, x: b.follow(IDS, x)),
    "update_priorities: ids": (IDS, lambda b, x: b.update_priorities(x, ERRORS)),
    "update_priorities: ids by name": (IDS, lambda b, x: b.update_priorities(td_error=ERRORS, ids=x)),
    "update_priorities: errors": (ERRORS, lambda b, x: b.update_priorities(IDS, x)),
    "update_priorities: narrow errors": (ERRORS.astype("float32"), lambda b, x: b.update_priorities(IDS, x)),
    "update_priorities: whole errors": (ERRORS.astype(int), lambda b, x: b.update_priorities(IDS, x)),
    "update_priorities: a column": (ERRORS[:, None], lambda b, x: b.update_priorities(IDS, x)),
    "update_priorities: listed ids": (ERRORS, lambda b, x: b.update_priorities(IDS.tolist(), x)),
    "write: ids": (IDS, lambda b, x: b.write(x, value=np.ones(2))),
    "write: ids of two axes": (IDS[:, None], lambda b, x: b.write(x, value=np.ones((2, 1)))),
    "write: values": (ERRORS, lambda b, x: b.write(IDS, value=x)),
    "cut": (IDS, lambda b, x: b.cut(x)),
    "add: env_ids": (IDS, lambda b, x: b.add(**steps(L), env_ids=x)),
    "add: priority": (ERRORS, lambda b, x: b.add(**steps(L), priority=x)),
    "extend: env_ids": (IDS, lambda b, x: b.extend(**steps(L, T), env_ids=x)),
    "extend: priority": (np.ones((L, T)), lambda b, x: b.extend(**steps(L, T), priority=x)),
    "draw_at": (ERRORS / 10, lambda b, x: drawing.draw_at(b._core, x)),
    "Mixture.update_priorities: ids": (IDS, lambda b, x: relive.Mixture(b, b).update_priorities(x, ERRORS)),
    "Mixture.update_priorities": (ERRORS, lambda b, x: relive.Mixture(b, b).update_priorities(IDS, x)),
    **{f"add: {name}": (x, lambda b, x, name=name: b.add(**steps(L) | {name: x})) for name, x in steps(L).items()},
    **{
        f"extend: {name}": (x, lambda b, x, name=name: b.extend(**steps(L, T) | {name: x}))
        for name, x in steps(L, T).items()
    },
}
# As above, with a single number.
NUMBERS: dict[str, Callable[[relive.ReplayBuffer, Any], Any]] = {
    "sample": lambda b, x: b.sample(x),
    "sample: beta": lambda b, x: b.sample(2, beta=x),
    "batches": lambda b, x: list(b.batches(x)),
    "prefetch": lambda b, x: b.prefetch(x),
    "follow": lambda b, x: b.follow(IDS, x),
    "raise_priority": lambda b, x: drawing.raise_priority(b._core, x),
}


def refused(call: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(relive.errors.ReliveError, match=WORDS):
        call(*arguments)


def state_of(buffer: relive.ReplayBuffer) -> str:
    kept = [buffer.column(path) for path in ("ids", "obs", "action", "reward", "value", "terminated")]
    return repr([len(buffer), buffer.stats().cuts, kept, buffer.priorities(IDS).tolist()])


@pytest.mark.parametrize("name", OF_BUFFERS)
def test_a_call_of_a_buffer(name: str) -> None:
    """Give an array with a hidden value, and a list of such; one that hides nothing is taken."""
    plain, call = OF_BUFFERS[name]
    buffer = made()
    before = state_of(buffer)
    for spoilt in (hiding(plain), listed(plain), tuple(listed(plain))):
        refused(call, buffer, spoilt)
        assert state_of(buffer) == before, "a refused call changes nothing"
    call(buffer, whole(plain))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number(name: str) -> None:
    buffer = made()
    refused(NUMBERS[name], buffer, np.ma.masked_array(1, True))
    assert not buffer.can_sample(np.ma.masked_array(1, True))  # type: ignore[arg-type]
    assert buffer.stats().drawn == 0


@pytest.mark.parametrize(
    "sampler", [relive.Prioritized(replacement=False), relive.Prioritized(newest="stored")], ids=repr
)
def test_other_samplers(sampler: Any) -> None:
    buffer = made(sampler)
    before = buffer.priorities(IDS).tolist()
    for ids, errors in ((hiding(IDS), ERRORS), (IDS, hiding(ERRORS)), (IDS, listed(ERRORS))):
        refused(buffer.update_priorities, ids, errors)
    assert buffer.priorities(IDS).tolist() == before


@pytest.mark.skipif(not _kernels.is_native(), reason="processes need the native kernels")
@pytest.mark.parametrize("storage", ["shared", "mapped"])
def test_other_processes(storage: str, tmp_path: Path) -> None:
    """Check calls of a buffer that others open, of a writer, and of a reader."""
    where = relive.Shared() if storage == "shared" else relive.Mapped(tmp_path / "ring")
    with made(storage=where) as buffer, relive.open(where.address) as reader:
        writes = ("add", "extend", "cut")
        for name, (plain, call) in OF_BUFFERS.items():
            targets = [buffer] if name.startswith(("write", *writes)) else [buffer, reader]
            for target in targets:
                refused(call, target, hiding(plain))
        buffer.close()
    where = relive.Shared() if storage == "shared" else relive.Mapped(tmp_path / "other")
    with relive.ReplayBuffer(schema(), 20, num_envs=L, storage=where) as buffer:
        with buffer.writer([0, 1]) as writer:
            for name, (plain, call) in OF_BUFFERS.items():
                if name.startswith(writes):
                    refused(call, writer, hiding(plain))
        assert len(buffer) == 0


def test_shards() -> None:
    shards, _ = local_shards(schema(), 40, num_envs=L, shards=2, sampler=relive.Prioritized())
    writes = ("add", "extend", "cut")
    with shards.writer() as writer:
        for name, (plain, call) in OF_BUFFERS.items():
            if name.startswith(writes):
                refused(call, writer, hiding(plain))
        writer.add(**steps(L))
    for name, (plain, call) in OF_BUFFERS.items():
        if name.startswith(("update_priorities", "write")):
            refused(call, shards, hiding(plain))
    assert shards.write(shards.sample(2).ids, value=whole(np.ones(2))) == 2


FUNCTIONS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "SumTree.set: indices": (IDS, lambda x: relive.SumTree(4).set(x, ERRORS)),
    "SumTree.set: values": (ERRORS, lambda x: relive.SumTree(4).set(IDS, x)),
    "SumTree.get": (IDS, lambda x: relive.SumTree(4).get(x)),
    "SumTree[...]": (IDS, lambda x: relive.SumTree(4)[x]),
    "SumTree.find": (ERRORS, lambda x: tree().find(x)),
    "sequence_priority: td": (np.ones((2, 3)), lambda x: relive.sequence_priority(x, np.ones((2, 3), bool))),
    "sequence_priority: mask": (np.ones((2, 3), bool), lambda x: relive.sequence_priority(np.ones((2, 3)), x)),
    "precision_priority": (ERRORS, lambda x: relive.precision_priority(x, 1.0)),
    "Trajectory": (np.ones((2, 3, 1)), lambda x: relive.Trajectory(rewards=x)),
}


def tree() -> relive.SumTree:
    made = relive.SumTree(4)
    made.set(IDS, ERRORS)
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    plain, call = FUNCTIONS[name]
    for spoilt in (hiding(plain), listed(plain)):
        refused(call, spoilt)
    call(whole(plain))


def test_numbers_that_callers_functions_return() -> None:
    """Return masked uniforms from a generator, and masked rewards of `Hindsight`."""
    buffer = made()

    class Own:
        def random(self, size: int) -> Any:
            return hiding(np.full(size, 0.5))

    buffer.rng = Own()  # type: ignore[assignment]
    refused(buffer.sample, 4)
    goal = relive.Field((1,))
    goals = relive.Schema(obs={"observation": goal, "achieved_goal": goal, "desired_goal": goal}, action=relive.Field())
    item = relive.Hindsight(reward=lambda achieved, desired, info: hiding(np.zeros(len(achieved))))
    buffer = relive.ReplayBuffer(goals, 20, item=item, seed=0)
    obs = {name: [0.0] for name in goals.tree["obs"]}
    for t in range(6):
        buffer.add(obs=obs, action=0.0, reward=0.0, next_obs=obs, terminated=t == 5, truncated=False)
    refused(buffer.sample, 32)


class Own(np.ndarray):
    """A subclass that hides nothing."""


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_other_kinds_of_arrays() -> None:
    """Check that subclasses that hide nothing are arrays; structured ones and objects are no numbers."""
    buffer = made()
    assert buffer.update_priorities(IDS.view(Own), ERRORS.view(Own)) == 2
    assert buffer.priorities(IDS).tolist() == pytest.approx([5.0, 9.0])
    assert buffer.update_priorities(IDS, np.matrix(ERRORS).T) == 2
    structured = np.zeros(2, [("a", "f8")])
    for wrong in (structured, ERRORS.astype(object), ERRORS.astype("U4"), ERRORS.astype(complex)):
        with pytest.raises(relive.errors.PriorityError, match="Expected an array of numbers"):
            buffer.update_priorities(IDS, wrong)
    for wrong in (structured, IDS.astype(object), ERRORS, IDS.astype("m8[s]"), np.matrix(IDS)):
        with pytest.raises(relive.errors.ArgumentError, match="Expected integers of shape"):
            buffer.update_priorities(wrong, ERRORS)
    assert buffer.priorities(IDS).tolist() == pytest.approx([5.0, 9.0])


def test_tensors_that_require_grad() -> None:
    """Check that TD errors are detached; other numbers on a graph are refused with PyTorch's reason."""
    torch = pytest.importorskip("torch")
    buffer = made()
    errors = torch.tensor(ERRORS, requires_grad=True)
    assert buffer.update_priorities(IDS, errors) == 2
    assert buffer.update_priorities(IDS, errors[:, None] * 2) == 2
    assert buffer.priorities(IDS).tolist() == pytest.approx([10.0, 18.0])
    wide = errors.repeat(3, 1)
    np.testing.assert_allclose(relive.sequence_priority(wide, np.ones((3, 2), bool), eta=1.0), 9.0)
    for call in (
        lambda: buffer.add(**steps(L) | {"reward": errors}),
        lambda: buffer.add(**steps(L), priority=errors),
        lambda: buffer.write(IDS, value=errors),
    ):
        with pytest.raises(relive.errors.ReliveError, match="requires grad"):
            call()
