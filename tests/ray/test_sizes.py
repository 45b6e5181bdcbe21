"""The model of sizes in examples/ray_sizes.py against what shards are sent, send, and occupy. No cluster is needed."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local import Local
from ray_sizes import PROCESS, Plan

import relive
from relive._ring import kernels
from relive.ray._planning import planned
from relive.ray._writer import Writer

VECTOR = relive.Schema(obs=relive.Field((17,)), action=relive.Field((6,)))
IMAGES = relive.Schema(obs=relive.Field((20, 20), "uint8", stack=4), action=relive.Field((), "int64"))
LANES, STEPS = 8, 64


def steps_of(schema: relive.Schema, count: int) -> dict[str, Any]:
    obs, action = (column.field for column in schema.columns[:2])
    whole = np.zeros((LANES, count, *obs.full_shape), obs.dtype)
    flags = np.zeros((LANES, count), bool)
    fields = {"obs": whole, "next_obs": whole, "action": np.zeros((LANES, count, *action.shape), action.dtype)}
    return {**fields, "reward": np.zeros((LANES, count)), "terminated": flags, "truncated": flags}


def local_of(schema: relive.Schema, rows: int, sampler: Any) -> Local:
    return Local(planned(schema, rows, LANES, 1, relive.Transitions(), sampler, np.random.default_rng(0), None, None))


@pytest.mark.parametrize("schema", [VECTOR, IMAGES], ids=["vector", "images"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_bytes_on_the_wire(schema: relive.Schema, prioritized: bool) -> None:
    """Compare within 5 % of the pickled bytes: a block of 32 steps of every lane, a draw of 512, an update."""
    sampler = relive.Prioritized() if prioritized else relive.Uniform()
    plan = planned(
        schema, 10_000, LANES, 1, relive.Transitions(n_step=3), sampler, np.random.default_rng(0), None, None
    )
    local = Local(plan)
    sent: list[tuple[str, int]] = []
    call = local.call

    def measured(shard: int, method: str, *arguments: Any) -> Any:
        sent.append((method, len(pickle.dumps(arguments, protocol=5))))
        return call(shard, method, *arguments)

    local.call = measured  # type: ignore[method-assign]
    writer = Writer(plan, local, np.arange(LANES))
    priority = {"priority": np.ones((LANES, STEPS))} if prioritized else {}
    writer.extend(**steps_of(schema, STEPS), **priority)
    assert writer.flush() == 0
    writer.close()
    model = Plan(schema, lanes=LANES, shards=1, prioritized=prioritized)
    blocks = sum(size for method, size in sent if method == "add")
    assert blocks / (LANES * STEPS) == pytest.approx(model.step_bytes, rel=0.05)

    fractions = np.random.default_rng(0).random(512)
    shard = local.objects[0]
    drawn = shard.draw(fractions, 1.0)
    size = len(pickle.dumps(drawn, protocol=5)) + len(pickle.dumps(fractions, protocol=5))
    if prioritized:
        size += len(pickle.dumps((drawn[0].fields["ids"], np.ones(512)), protocol=5))
    assert size / 512 == pytest.approx(model.item_bytes, rel=0.05)


FILL = """
import sys
sys.path[:0] = {paths!r}
import test_sizes
from test_sizes import *
def own():
    _, resident, shared = map(int, open("/proc/self/statm").read().split()[:3])
    return (resident - shared) * 4096
schema = getattr(test_sizes, {name!r})
steps = {{**steps_of(schema, 64), "priority": np.ones((LANES, 64))}}
before = own()
local = local_of(schema, {rows}, relive.Prioritized())
for _ in range({rows} // LANES // 64 + 2):
    local.objects[0].buffer.extend(**steps)
print(own() - before)
"""


@pytest.mark.skipif(not kernels.is_native(), reason="the model counts what the native kernels hold")
@pytest.mark.parametrize(("name", "rows"), [("VECTOR", 250_000), ("IMAGES", 60_000)])
def test_memory_of_a_full_shard(name: str, rows: int) -> None:
    """Compare within 10 % of the growth of a shard's process."""
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    code = FILL.format(paths=paths, name=name, rows=rows)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    model = Plan(globals()[name], capacity=rows, lanes=LANES, shards=1)
    assert int(done.stdout) == pytest.approx(model.shard_bytes - PROCESS, rel=0.10)


def test_the_page_shows_what_the_model_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    schema = relive.Schema(obs=relive.Field((84, 84), "uint8", stack=4), action=relive.Field())
    model = Plan(schema, capacity=100_000_000, lanes=256, shards=8, steps=20_000)
    for line in model.table().splitlines():
        assert line in page
