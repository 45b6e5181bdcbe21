"""Drawings of traces: a line for each stored item, as the boundary explorer draws it, in inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from relive.errors import ArgumentError

from ._report import Report
from ._trace import LENGTHS, TracedItem, TracedState, trace

_PITCH, _GAP, _LEFT, _TOP, _HEIGHT = 34, 24, 40, 62, 15
_BAD, _FINE, _SOFT = "#c8443b", "#2b8a4b", "var(--soft)"
_EPISODES = ("#2f7fd0", "#8a56c9", "#b5711f", "#77828c")
_MOST = 3


def drawings(pipeline: Any, report: Report) -> list[tuple[str, str]]:
    """Draw what a pipeline stores of three short episodes, for each bug of its items; else one state that is right.

    Args:
        pipeline: The pipeline, or a function that makes it.
        report: The report on it.

    Returns:
        A title and an inline SVG for each drawing; none for a pipeline that does not run with one environment.

    >>> from relive.doctor import examine, pipelines
    >>> made = pipelines.named("relive")
    >>> drawings(made, examine(made, n_steps=1, modes="same_step"))[0][0]
    'all items are right (SAME_STEP, n = 1, episodes truncated)'
    """
    steps = sorted({check.n_step for check in report.checks})
    modes = dict.fromkeys(check.autoreset_mode for check in report.checks)
    try:
        states = trace(pipeline, n_steps=steps, modes=modes, name=report.pipeline).states
    except ArgumentError:
        return []
    shown: dict[int, TracedState] = {}
    wanted: list[Callable[[TracedState], bool]] = [
        lambda state, probe=bug.probe: any(probe in item.faults for item in state.items)  # type: ignore[misc]
        for bug in report.bugs
    ]
    for fits in wanted or [lambda state: True]:
        at = next((at for at, state in enumerate(states) if fits(state)), None)
        if at is not None:
            shown.setdefault(at, states[at])
    return [(_title(state), arcs(state)) for state in [*shown.values()][:_MOST]]


def _title(state: TracedState) -> str:
    found = dict.fromkeys(fault for item in state.items for fault in item.faults)
    verdict = ", ".join(found) or "all items are right"
    return f"{verdict} ({state.autoreset_mode.upper()}, n = {state.n_step}, episodes {state.end})"


def arcs(state: TracedState) -> str:
    """Draw the items of a state as inline SVG."""
    bottom = _TOP + _HEIGHT * len(state.items) + 8
    parts = [*_episodes(state, bottom)]
    for at, item in enumerate(state.items):
        parts += _item(item, at, _TOP + _HEIGHT * at + 6)
    parts += [f'<circle cx="{_x(code)}" cy="44" r="8" fill="none" stroke="{_BAD}"/>' for code in state.missing]
    label = escape(f"Items that are stored: {_title(state)}")
    width = _x(300) + _PITCH
    return f'<svg viewBox="0 0 {width} {bottom}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _x(obs: float) -> int:
    """Return the place of an observation from left to right; what belongs to no episode lies at the right end."""
    episode = int(obs // 100) if 0 <= obs < 300 else len(LENGTHS)
    step = min(int(obs % 100), LENGTHS[episode]) if episode < len(LENGTHS) else 0
    before = sum(length + 1 for length in LENGTHS[:episode])
    return _LEFT + _PITCH * (before + step) + _GAP * episode


def _episodes(state: TracedState, bottom: int) -> Iterator[str]:
    for episode, length in enumerate((*LENGTHS, 0)):
        codes = [100 * episode + t for t in range(length + 1)]
        first, last, hue = _x(codes[0]), _x(codes[-1]), _EPISODES[episode]
        size = f'width="{last - first + 28}" height="{bottom - 22}"'
        yield f'<rect x="{first - 14}" y="20" {size} rx="6" fill="{hue}" fill-opacity=".09"/>'
        yield f'<text x="{(first + last) / 2}" y="13" text-anchor="middle">episode {episode}</text>'
        for t, code in enumerate(codes):
            yield f'<text x="{_x(code)}" y="34" text-anchor="middle">{code}</text>'
            inside = hue if state.end == "terminated" else "none"
            yield (
                f'<rect x="{_x(code) - 5}" y="39" width="10" height="10" fill="{inside}" stroke="{hue}"/>'
                if t == length and length
                else f'<circle cx="{_x(code)}" cy="44" r="4" fill="{hue}"/>'
            )


def _item(item: TracedItem, at: int, y: int) -> Iterator[str]:
    start, end = _x(item.obs), _x(item.next_obs)
    ink, dashes = (_BAD, ' stroke-dasharray="5 3"') if item.faults else (_SOFT, "")
    words = f"obs {item.obs:g}, reward {item.reward:g}, discount {item.discount:g}, next_obs {item.next_obs:g}"
    words += f": {', '.join(item.faults)}" if item.faults else ""
    yield f'<g><title>{escape(words)}</title><text x="4" y="{y + 4}">{at + 1}</text>'
    yield f'<line x1="{start}" x2="{end}" y1="{y}" y2="{y}" stroke="{ink}" stroke-width="3"{dashes}/>'
    yield f'<circle cx="{start}" cy="{y}" r="3.5" fill="{ink}"/>'
    if item.faults and item.right and item.right[1] and item.right[2] != item.next_obs:
        yield f'<path d="M{_x(item.right[2])} {y - 6}v12" stroke="{_FINE}" stroke-width="3"/>'
    yield (
        f'<circle cx="{end}" cy="{y}" r="4" fill="var(--card)" stroke="{ink}" stroke-width="2"/>'
        if item.discount
        else f'<rect x="{end - 2}" y="{y - 5}" width="3" height="10" fill="{ink}"/>'
    )
    yield "</g>"
