"""Other ways to every item: what a copy, a load, a thread, a limiter or a mixture draws is what the buffer draws."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_items import ITEMS, OWN

import relive
from relive._base.nests import paths
from relive.testing import SCHEMAS
from relive.testing._lives import feed, life
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")


@pytest.mark.parametrize("name", ITEMS)
def test_every_way(name: str, tmp_path: Path) -> None:
    item, schema, *_ = ITEMS[name]

    def lived(seed: int = 1, **choices: Any) -> relive.ReplayBuffer:
        buffer = relive.ReplayBuffer({**SCHEMAS, **OWN}[schema], 64, num_envs=2, item=item, seed=seed, **choices)
        for call in life(buffer, 16):
            feed(buffer, call)
        return buffer

    buffer = lived()
    buffer.save(tmp_path)
    given = {"item": item} if isinstance(item, relive.Hindsight) else {}  # its functions are not saved
    ways = [copy.deepcopy(buffer), relive.load(tmp_path, **given)]
    ways.append(lived(limiter=relive.RateLimiter(1, min_size=1, error_buffer=1e9)))
    wanted = buffer.sample(16)
    assert ways[1].item == item
    for other in ways:
        assert_same_batch(other.sample(16), wanted)
    with lived().prefetch(16) as batches:
        assert_same_batch(next(batches), wanted)
    mixed, parts = relive.Mixture(lived(), lived(2)).sample(16), [lived(seed).sample(8).ids for seed in (1, 2)]
    assert mixed.ids.tolist() == np.concatenate(parts).tolist()
    shapes = ({path: array.shape for path, array in paths(batch)} for batch in (mixed, wanted))
    assert next(shapes) == next(shapes)
