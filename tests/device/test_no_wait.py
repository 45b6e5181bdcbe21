"""No call that promises it waits for the device, and all tensors lie there: seen on a device without kernels."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG, some
from no_wait import NoWait, fake_device
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import relive

LANES, N = 6, 16
SAMPLERS = [relive.Uniform(), relive.Prioritized(beta=relive.Anneal(0.4, 1.0, 5)), relive.Prioritized(weights="none")]
RECENT = relive.Recent(share=0.2, beta=0.5, weights="buffer")
BLEND = relive.Blend((relive.Uniform(), 0.5), (SAMPLERS[1], 0.3), (RECENT.__replace__(weights="batch"), 0.2))
# A sampler, an item, and the frames of an image.
CASES: list[tuple[Any, Any, int | None]] = [(sampler, relive.Transitions(n_step=3), None) for sampler in SAMPLERS]
CASES += [
    (SAMPLERS[0], relive.Sequences(3, time_major=True, step_ids=True), 3),
    (SAMPLERS[1], relive.Transitions(n_step=3, chunk=True), 3),
    (SAMPLERS[1], relive.Sequences(4, burn_in=2, n_step=2, starts=2), None),
    (SAMPLERS[1], relive.Sequences(4, burn_in=1, n_step=2, across_episodes=True, step_ids=True), None),
    (RECENT, relive.Transitions(n_step=3), None),
    (BLEND, relive.Sequences(4, starts=2), None),
]


def buffer_on(device: Any, sampler: Any, item: Any, stack: int | None) -> relive.DeviceBuffer:
    obs = {"state": relive.Field((3,)), "image": relive.Field((4, 50), "uint8", stack=stack)}
    carry = relive.Field((3,), every=getattr(item, "starts", 1), writable=True)
    schema = relive.Schema(obs=obs, action=relive.Field((2,)), carry=carry)
    choices = {"item": item, "sampler": sampler, "device": device}
    return relive.DeviceBuffer(schema, 40 * LANES, num_envs=LANES, **choices)


def step_on(device: Any, t: int = 0, stack: int | None = None) -> dict[str, Any]:
    frames = (stack,) if stack else ()

    def filled(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, value: int = 0) -> Tensor:
        return torch.full((LANES, *shape), value, dtype=dtype, device=device)

    obs, nexts = (
        {"state": filled((3,), value=k), "image": filled((*frames, 4, 50), torch.uint8, k)} for k in (t, t + 1)
    )
    flags = {"terminated": filled((), torch.bool, t % 7 == 6), "truncated": filled((), torch.bool, t % 5 == 4)}
    fields = {"obs": obs, "action": filled((2,)), "reward": filled((), value=t), "carry": filled((3,), value=t)}
    return {**fields, "next_obs": nexts, **flags}


def calls(buffer: relive.DeviceBuffer, device: Any, stack: int | None) -> dict[str, Callable[[], Any]]:
    """Every call that promises not to wait, in all its forms."""
    step, mask = step_on(device, stack=stack), torch.zeros(LANES, dtype=torch.bool, device=device)
    ids = torch.zeros(N, dtype=torch.int64, device=device)
    found: dict[str, Callable[[], Any]] = {
        "add": lambda: buffer.add(**step),
        "add, continues": lambda: buffer.add(**step, continues=True),
        "add with masks": lambda: buffer.add(**step, mask=mask, final_obs=step["next_obs"], final_mask=mask),
        "sample": lambda: [*buffer.sample(N).values()],
        "cut": lambda: buffer.cut(mask),
        "read": lambda: [*buffer.read(ids).values()],
        "probability": lambda: buffer.probability(ids),
        "write": lambda: buffer.write(ids, carry=torch.ones((N, 3), device=device)),
    }
    if buffer.sampler.prioritizes:
        errors = torch.ones(N, dtype=torch.float32, device=device)
        found |= {
            "priorities": lambda: buffer.priorities(ids),
            "update": lambda: buffer.update_priorities(ids, errors[:, None]),
            "sample with beta": lambda: buffer.sample(N, beta=0.5),
            "sample with a tensor": lambda: buffer.sample(N, beta=torch.ones((), device=device)),
            "add with priorities": lambda: buffer.add(**step, priority=errors[:LANES]),
        }
    return found


@pytest.mark.parametrize(("sampler", "item", "stack"), some(CASES, 3))
def test_no_call_waits(sampler: Any, item: Any, stack: int | None) -> None:
    """On a device without kernels, `item`, `tolist` and copies to the host raise."""
    device = fake_device()
    with FakeTensorMode():
        buffer = buffer_on(device, sampler, item, stack)
        for name, call in [*calls(buffer, device, stack).items(), ("clear", buffer.clear)]:
            with NoWait():
                result = call()
            for tensor in torch.utils._pytree.tree_leaves(result):
                assert not isinstance(tensor, Tensor) or tensor.device == device, name
        for waiting in (lambda: len(buffer), buffer.check, buffer.host, lambda: repr(buffer)):
            with pytest.raises(Exception):  # noqa: B017, PT011 - whatever PyTorch says of it
                waiting()


@pytest.mark.parametrize("bad", [lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: x.nonzero(), torch.unique,
                                 lambda x: x.cpu(), lambda x: x + torch.ones(3, dtype=torch.float64)])  # fmt: skip
def test_what_waits_is_seen(bad: Callable[[Tensor], Any]) -> None:
    device = fake_device()
    with FakeTensorMode(), pytest.raises(Exception), NoWait():  # noqa: B017, PT011
        bad(torch.ones(3, device=device))


def turn(buffer: relive.DeviceBuffer, step: Any, errors: Tensor) -> list[Tensor]:
    """Add, draw, update, write and cut."""
    ids = buffer.add(**step)
    batch = buffer.sample(N)
    if buffer.sampler.prioritizes:
        buffer.update_priorities(batch.ids, errors)
    buffer.write(batch.ids, carry=batch.carry.reshape(N, -1)[:, :3] + 1)
    buffer.cut(step["terminated"])
    return [ids, *leaves(batch)]


def leaves(batch: relive.Batch) -> list[Tensor]:
    parts = (leaves(value) if isinstance(value, relive.Batch) else [value] for value in batch.values())
    return [tensor for part in parts for tensor in part]


GRAPHS = [*some([CASES[1], CASES[0], CASES[2], *CASES[-4:-2]], 1), *CASES[-2:]]


@pytest.mark.parametrize(("sampler", "item", "stack"), GRAPHS)
def test_one_graph(sampler: Any, item: Any, stack: int | None) -> None:
    """A turn is traced once and replayed with other values: state, batches and ids are those of plain calls."""
    rng = np.random.default_rng(0)
    plain, traced = (buffer_on("cpu", sampler, item, stack) for _ in range(2))
    for t in range(6):
        for buffer in (plain, traced):
            buffer.add(**step_on("cpu", t, stack))
    torch.manual_seed(0)
    graph = make_fx(lambda step, errors: turn(traced, step, errors))(step_on("cpu", 6, stack), torch.ones(N))
    torch.manual_seed(0)
    turn(plain, step_on("cpu", 6, stack), torch.ones(N))
    for t in range(7, 107 if LONG else 19):
        step, errors = step_on("cpu", t, stack), torch.from_numpy(rng.standard_normal(N)).float()
        torch.manual_seed(t)
        found = graph(step, errors)
        torch.manual_seed(t)
        for one, other in zip(found, turn(plain, step, errors), strict=True):
            assert torch.equal(one, other), t
    every = torch.arange(40 * LANES)
    for one, other in zip(leaves(plain.read(every)), leaves(traced.read(every)), strict=True):
        assert torch.equal(one, other)
    assert len(plain) == len(traced)
    assert plain.stats().updates == traced.stats().updates


@pytest.mark.parametrize(
    ("sampler", "one", "three"),
    [
        (relive.Uniform(), 65, 80),
        (relive.Prioritized(), 145, 160),
        (relive.Recent(mean_age=9.0), 85, 100),
        (BLEND, 260, 275),
    ],
    ids=["uniform", "prioritized", "recent", "blend"],
)
def test_launches_of_a_turn(sampler: Any, one: int, three: int) -> None:
    for n_step, most in ((1, one), (3, three)):
        schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field((2,)))
        item = relive.Transitions(n_step=n_step)
        buffer = relive.DeviceBuffer(schema, 240, num_envs=LANES, item=item, sampler=sampler, device="cpu", seed=0)
        obs, no = torch.zeros(LANES, 3), torch.zeros(LANES, dtype=torch.bool)
        step = {"obs": obs, "action": obs[:, :2], "reward": obs[:, 0], "next_obs": obs}
        for launches in range(9):
            with NoWait() as calls:
                buffer.add(**step, terminated=no, truncated=no, continues=True)
                if launches > 4:
                    batch = buffer.sample(N)
                    if sampler.prioritizes:
                        buffer.update_priorities(batch.ids, torch.ones(N))
        assert calls.launches <= most, sorted(calls.ops.items())


SLOW = ("aot_eager", "inductor")


@pytest.mark.parametrize("sampler", some([relive.Prioritized(), BLEND], 1), ids=repr)
@pytest.mark.parametrize("backend", ["eager", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_turn_compiles_whole(backend: str, sampler: Any, tmp_path: Path) -> None:
    """Its values are those of plain calls; the last back end runs a C++ compiler for half a minute."""
    same: Any = nullcontext
    if backend != "eager":
        from torch._inductor import config  # brings Triton

        same = partial(config.patch, fallback_random=True)  # the same random numbers
    plain, other = (buffer_on("cpu", sampler, relive.Transitions(n_step=3), None) for _ in range(2))
    for t in range(6):
        for buffer in (plain, other):
            buffer.add(**step_on("cpu", t))

    def reads(buffer: relive.DeviceBuffer, step: Any) -> list[Tensor]:
        return [buffer.add(**step, continues=True), *leaves(buffer.sample(N))]

    compiled = torch.compile(lambda step: reads(other, step), fullgraph=True, backend=backend)
    for t in range(6, 16):
        torch.manual_seed(t)
        with same():
            found = compiled(step_on("cpu", t))
        torch.manual_seed(t)
        for one, right in zip(found, reads(plain, step_on("cpu", t)), strict=True):
            torch.testing.assert_close(one, right)
    other.save(tmp_path)
    with ThreadPoolExecutor() as pool, pytest.raises(relive.ReliveError, match="compiled calls"):
        pool.submit(other.save, tmp_path).result()
