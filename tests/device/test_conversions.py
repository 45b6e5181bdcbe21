"""Random programs' buffers as ordinary ones and as device buffers again: every item is the oracle's still."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG
from lockstep_lanes import Rec, compare, expected_sequence, expected_transition
from lockstep_programs import Program
from test_recency_on_device import SAMPLERS

import relive

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")


@pytest.mark.parametrize("seed", range(200 if LONG else 8))
def test_every_item_stays(seed: int) -> None:
    program = Program(seed, [None, SAMPLERS["by share"], SAMPLERS["blend"], SAMPLERS["in order"]][seed % 4])
    for _ in range(40 + seed % 90):
        program.step()
        program.disturb()
    if isinstance(program.item, relive.Sequences) and program.item.across_episodes and program.masked:
        pytest.skip("across episodes lanes that are left out have no positions in an ordinary buffer")
    oracle, host = program.oracle, program.buffer.host()
    assert host.sampler == program.buffer.sampler
    assert host.can_sample(1) == (len(host.ids()) > 0)
    tags, ids, kept = host.column("extra"), host.column("ids"), host.column("ids") >= 0
    there = dict(zip(tags[kept].tolist(), ids[kept].tolist(), strict=True))
    drawable = set(host.ids().tolist())
    span = program.item.window(host.schema).span
    items = [i for i in oracle.items() if there[record(program, i).extra] in drawable]
    # After an end without a final observation, an ordinary buffer waits for what follows.
    waiting = (oracle.head - span) * program.lanes
    assert all(program.item.across_episodes and i >= waiting for i in set(oracle.items()) - set(items))
    found = [there[record(program, i).extra] for i in items]
    if items:
        compare(host.read(np.array(found)).torch(), [wanted(program, i, there) for i in items], program.item)
        if host.sampler.prioritizes:
            mine = program.buffer.priorities(torch.tensor(items)).numpy()
            np.testing.assert_allclose(host.priorities(np.array(found)), mine, rtol=1e-5)
    again = relive.DeviceBuffer.of(host, device="cpu")
    assert again.sampler == host.sampler
    batch = again.read(torch.arange(int(again.stats().added) * 3 + 999))
    # Where the steps of the device buffer are now, by their tags.
    back = dict(zip(*tags_of(again), strict=True))
    held = set(batch.ids[batch.ids >= 0].tolist())
    same = [i for i in items if back.get(record(program, i).extra) in held]
    window = program.item.window(host.schema)
    newest = {lane: max(recs) for lane, recs in enumerate(oracle.recs) if recs}
    oldest = oracle.first() + window.starts
    for i in set(items) - set(same):
        call, lane = divmod(i, program.lanes)
        assert call > newest[lane] - window.span - 2 * window.starts or call < oldest, "an item got lost"
    if same:
        at = torch.tensor([back[record(program, i).extra] for i in same])
        compare(again.read(at), [wanted(program, i, back) for i in same], program.item)
        if host.sampler.prioritizes:
            mine = program.buffer.priorities(torch.tensor(same))
            np.testing.assert_allclose(again.priorities(at), mine, rtol=1e-5)


def record(program: Program, i: int) -> Rec:
    return program.oracle.recs[i % program.lanes][i // program.lanes]


def tags_of(buffer: relive.DeviceBuffer) -> tuple[list[int], list[int]]:
    """Return the tags of all stored steps, and their ids."""
    ring = buffer._ring
    ids = ring.stored()
    field = next(field for field in ring.fields if field.keys == ("extra",))
    return ring.data[field][ids % ring.size].tolist(), ids.tolist()


def wanted(program: Program, i: int, there: dict[int, int]) -> dict[str, Any]:
    """Return the oracle's item `i` with the ids of another buffer."""
    if isinstance(program.item, relive.Transitions):
        made = expected_transition(program.oracle, program.item, i)
    else:
        made = expected_sequence(program.oracle, program.item, i, program.every)
        last = program.oracle.recs[i % program.lanes].get(i // program.lanes + len(made["all_obs"]) - 2)
        if program.item.across_episodes and last is not None and (last.terminated or last.truncated):
            for name in ("obs", "prev_action", "prev_reward"):
                made[f"all_{name}"][-1] = None  # there the final observation, here the next episode's first
        made["step_ids"] = [k if k < 0 else there[record(program, k).extra] for k in made["step_ids"]]
    return made | {"ids": there[record(program, i).extra]}
