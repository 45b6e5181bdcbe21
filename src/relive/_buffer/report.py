"""A page about a buffer as it is now, and what a notebook shows of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base import page
from .._base.page import fragment, histogram, section, short, stacked, table, thumbnails
from .._base.types import Array, Float64, Int64
from .._schema.fields import Column, is_image
from ..errors import ReliveError
from ..items import Transitions
from . import drawing, stored
from .arguments import readable
from .core import Core

_EXAMPLES = 12


def shown(core: Core) -> str:
    """Compose what a notebook shows of a buffer."""
    return fragment("ReplayBuffer", (), [*_choices(core), ("when full", readable(core.nbytes))])


def write(core: Core, path: Any) -> str:
    """Write the page of a buffer, and return its path."""
    return page.write(path, "ReplayBuffer.report(path)", _page(core))


def _choices(core: Core) -> list[tuple[str, str]]:
    choices = core.choices
    most = choices.num_envs * choices.steps
    found = [("steps", f"{stored.stored(core):,} of {most:,}"), ("environments", f"{choices.num_envs:,}")]
    named = {"item": core.item, "sampler": core.sampler, "storage": core.storage, "limiter": choices.limiter}
    return found + [(name, repr(choice)) for name, choice in named.items() if choice is not None]


def _page(core: Core) -> str:
    with core.lock.hold() if core.limit is None else core.limit.hold(core.lock):  # one state
        stats = stored.stats(core)
        ids, rewards = stored.column(core, "ids"), stored.column(core, "reward")
        ends = stored.column(core, "terminated") | stored.column(core, "truncated")
        drawable = drawing.ids(core, None)
        raw = drawing.priorities(core, drawable) if core.update is not None else np.empty(0)
        images = _images(core, drawable)
    lanes = core.choices.num_envs
    newest = ids.max(axis=1, initial=0) // lanes
    steps = (ids >= 0).sum(axis=1)
    single = not core.schema.reward.shape
    lengths, returns = _episodes(ids // lanes, ids >= 0, ends, rewards if single else np.zeros(ids.shape))
    tiles = [
        ("steps stored", f"{stats.size:,}", f"of {stats.capacity:,}"),
        ("steps ever added", f"{stats.added:,}", ""),
        ("items ever drawn", f"{stats.drawn:,}", ""),
        ("replay ratio", short(stats.replay_ratio), "draws a step"),
        ("whole episodes", f"{len(lengths):,}", ""),
        ("environments", f"{lanes:,}", ""),
        ("bytes when full", readable(stats.nbytes), ""),
    ]
    fields = [(c.path.removeprefix("$."), c.field.dtype.name, str(c.field.full_shape)) for c in core.schema.columns]
    parts = [("steps", steps), ("free", core.choices.steps - steps)]
    counts = [tuple(line.split(None, 1)) for line in str(stats).splitlines()]
    sections = [
        section("Choices", "", table(("choice", "value"), _choices(core)), wide=True),
        stacked("Fill", "Steps of each environment.", parts, core.choices.steps, "environment"),
        histogram("Rewards", rewards[ids >= 0].reshape(-1), "All stored steps.", "rewards"),
        histogram("Episode lengths", lengths, "Episodes that are stored as a whole.", "episodes"),
        histogram("Episode returns", returns, "Sums of rewards, not discounted.", "episodes") if single else "",
        histogram("Priorities", raw, "Raw priorities of the items that can be drawn, before alpha.", "items"),
        histogram("Ages", newest[drawable % lanes] - drawable // lanes, "Newer rows of the same environment.", "items"),
        section("Fields", "", table(("field", "dtype", "shape"), fields)),
        section("Counts", "", table(("count", "value"), counts)),
        *(thumbnails(name, "Examples, spread over the stored steps.", found) for name, found in images),
    ]
    return page.page("Replay buffer", "as it is now", tiles, sections)


def _episodes(rows: Int64, held: Array, ends: Array, rewards: Array) -> tuple[Int64, Float64]:
    """Return lengths and returns of the episodes that are stored as a whole."""
    lengths, returns = [], []
    for lane in range(len(rows)):
        order = np.argsort(rows[lane][held[lane]])
        at, over, values = (each[lane][held[lane]][order] for each in (rows, ends, rewards))
        begin = 0 if len(at) and not at[0] else None  # of the first one the start may be overwritten
        for end in np.flatnonzero(over).tolist():
            if begin is not None and at[end] - at[begin] == end - begin:  # no cut between
                lengths.append(end - begin + 1)
                returns.append(float(values[begin : end + 1].sum()))
            begin = end + 1
    return np.array(lengths, np.int64), np.array(returns, np.float64)


def _images(core: Core, drawable: Int64) -> list[tuple[str, list[tuple[str, Array]]]]:
    """Read examples of each field of images."""
    columns = [c for c in core.schema.columns if is_image(c.field.dtype, c.field.shape) and not c.field.every]
    if not columns or not len(drawable):
        return []
    chosen = drawable[np.unique(np.linspace(0, len(drawable) - 1, _EXAMPLES).astype(int))]
    try:
        batch = drawing.read(core, chosen, Transitions())
    except ReliveError:  # state that is kept at some steps alone
        return []
    return [(c.path.removeprefix("$."), _captioned(batch, c, chosen)) for c in columns]


def _captioned(batch: Any, column: Column, ids: Int64) -> list[tuple[str, Array]]:
    for key in column.keys:
        batch = batch[key]
    if column.field.stack:
        batch = batch[..., -1] if column.field.stack_axis else batch[:, -1]
    return [(f"id {number}", image) for number, image in zip(ids.tolist(), batch, strict=True)]
