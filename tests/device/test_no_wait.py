"""No call that promises it waits for the device, and all tensors lie there: seen on a device without kernels."""

from __future__ import annotations

from collections.abc import Callable
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
# A sampler, an item, and the frames of an image.
CASES: list[tuple[Any, Any, int | None]] = [(sampler, relive.Transitions(n_step=3), None) for sampler in SAMPLERS]
CASES += [
    (SAMPLERS[0], relive.Sequences(3, time_major=True, step_ids=True), 3),
    (SAMPLERS[1], relive.Transitions(n_step=3, chunk=True), 3),
    (SAMPLERS[1], relive.Sequences(4, n_step=2, starts=2), None),
]


def buffer_on(device: Any, sampler: Any, item: Any, stack: int | None) -> relive.DeviceBuffer:
    obs = {"state": relive.Field((3,)), "image": relive.Field((4, 50), "uint8", stack=stack)}
    carry = relive.Field((3,), every=getattr(item, "starts", 1), writable=True)
    schema = relive.Schema(obs=obs, action=relive.Field((2,)), carry=carry)
    choices = {"item": item, "sampler": sampler, "device": device, "seed": 0}
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
        "priorities": lambda: buffer.priorities(ids),
        "write": lambda: buffer.write(ids, carry=torch.ones((N, 3), device=device)),
    }
    if buffer.sampler.prioritizes:
        errors = torch.ones(N, dtype=torch.float32, device=device)
        found |= {
            "update": lambda: buffer.update_priorities(ids, errors[:, None]),
            "sample with beta": lambda: buffer.sample(N, beta=0.5),
            "sample with a tensor": lambda: buffer.sample(N, beta=torch.ones((), device=device)),
            "add with priorities": lambda: buffer.add(**step, priority=errors[:LANES]),
        }
    return found


@pytest.mark.parametrize(("sampler", "item", "stack"), CASES)
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


@pytest.mark.parametrize(("sampler", "item", "stack"), some([CASES[1], CASES[0], CASES[2], *CASES[-2:]], 3))
def test_one_graph(sampler: Any, item: Any, stack: int | None) -> None:
    """A turn is traced once and replayed with other values: state, batches and ids are those of plain calls."""

    def turn(buffer: relive.DeviceBuffer, step: Any, errors: Tensor) -> list[Any]:
        ids = buffer.add(**step)
        batch = buffer.sample(N)
        if buffer.sampler.prioritizes:
            buffer.update_priorities(batch.ids, errors)
        buffer.write(batch.ids, carry=batch.carry.reshape(N, -1)[:, :3] + 1)
        return [ids, *batch.obs.values(), batch.reward, batch.next_obs.state, batch.carry, batch.weights, batch.ids]

    rng = np.random.default_rng(0)
    plain, traced = (buffer_on("cpu", sampler, item, stack) for _ in range(2))
    for t in range(6):
        for buffer in (plain, traced):
            buffer.add(**step_on("cpu", t, stack))
    graph = make_fx(lambda step, errors: turn(traced, step, errors))(step_on("cpu", 6, stack), torch.ones(N))
    turn(plain, step_on("cpu", 6, stack), torch.ones(N))
    for t in range(7, (107 if LONG else 57) if isinstance(item, relive.Transitions) and not stack else 27):
        step, errors = step_on("cpu", t, stack), torch.from_numpy(rng.standard_normal(N))
        for found, wanted in zip(graph(step, errors.float()), turn(plain, step, errors.float()), strict=True):
            assert torch.equal(found, wanted), t
    for name, tensor in plain._state.arrays().items():
        assert torch.equal(tensor, traced._state.arrays()[name]), name
