"""A page that needs nothing but itself: style, tables, plots as inline SVG, images as PNG in data URIs."""

from __future__ import annotations

import base64
import math
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from . import check

Values = npt.NDArray[np.generic]

_STYLE = """
:root { color-scheme: light dark; --back: #f6f7f8; --card: #ffffff; --ink: #1d2329; --soft: #66707a; --line: #e3e6e9;
  --main: #2b7a9b; --more: #e0a43a; --rest: #e9ecef; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --card: #1d2125; --ink: #e6e9ec; --soft: #98a2ab;
  --line: #30363c; --main: #5fb3d4; --more: #e3b058; --rest: #2c3238; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 3rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { margin: 0; font-size: 1.6rem; font-weight: 650; letter-spacing: -.01em; }
h2 { margin: 0; font-size: 1rem; font-weight: 600; }
.path { margin: .15rem 0 1.25rem; color: var(--soft); overflow-wrap: anywhere; font-family: ui-monospace, monospace; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 0 0 1rem; }
.tiles div, section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
.tiles div { padding: .7rem .9rem; }
.tiles dt { color: var(--soft); font-size: .82rem; }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { display: block; font-size: .8rem; font-weight: 400; color: var(--soft); }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem; }
section { padding: .9rem 1rem 1rem; min-width: 0; overflow-x: auto; }
section.wide { grid-column: 1 / -1; }
section p { margin: .1rem 0 .5rem; color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
.main { fill: var(--main); } .more { fill: var(--more); } .rest { fill: var(--rest); }
.main:hover, .more:hover { opacity: .75; }
.key { display: inline-block; width: .75em; height: .75em; margin: 0 .35em 0 .9em; border-radius: .15em; }
.key.main { background: var(--main); margin-left: 0; } .key.more { background: var(--more); }
.key.rest { background: var(--rest); }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; font-weight: 500; color: var(--soft); }
td, th { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td { overflow-wrap: anywhere; }
td:first-child { overflow-wrap: normal; }
tr:last-child td { border-bottom: 0; }
.images { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: .75rem; margin-top: .5rem; }
figure { margin: 0; } figure img { width: 100%; image-rendering: pixelated; border-radius: .3rem; display: block;
  border: 1px solid var(--line); }
figcaption { color: var(--soft); font-size: .75rem; margin-top: .2rem; }
@media (max-width: 30rem) { svg text { font-size: 15px; } body { padding: 1.25rem .8rem 2rem; } }
footer { margin-top: 1.5rem; color: var(--soft); font-size: .8rem; }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 440, 200, 46, 24, 10
_BINS, _COLUMNS = 36, 128


def page(
    title: str, path: str, tiles: Iterable[tuple[str, str, str]], sections: Iterable[str], note: str = "", by: str = ""
) -> str:
    """Return the whole page; tiles are a name, a number and a note."""
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(note)}</small></dd></div>"
        for name, value, note in tiles
    )
    footer = f"{note} Written by relive{by}. The page needs no network and runs no scripts."
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: {escape(path)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>"
        f'<p class="path">{escape(path)}</p><dl class="tiles">{facts}</dl>\n<main>\n'
        + "\n".join(section for section in sections if section)
        + f"\n</main><footer>{escape(footer.strip())}</footer></body></html>\n"
    )


def plain(title: str, choices: Sequence[tuple[str, str]], counts: Iterable[tuple[str, object]]) -> str:
    """Compose a page of two tables."""
    rows = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in counts]
    tables = (("Choices", ("choice", "value"), choices), ("Counts", ("count", "value"), rows))
    return page(title, "as it is now", (), [section(name, "", table(head, body)) for name, head, body in tables])


def write(path: object, at: str, text: str) -> str:
    """Write a page to a file that a caller names at `at`; return its absolute path."""
    name = os.path.abspath(check.path(path, at))
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def fragment(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Compose what a notebook shows of an object: a table in the notebook's own colors."""
    titles = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in head)
    lines = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    top = f"<thead><tr>{titles}</tr></thead>" if head else ""
    return f"<div><strong>{escape(title)}</strong><table>{top}<tbody>{lines}</tbody></table></div>"


def section(title: str, note: str, body: str, *, wide: bool = False) -> str:
    """Compose a part of the page; `note` is text, `body` is markup."""
    text = f"<p>{escape(note)}</p>" if note else ""
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}><h2>{escape(title)}</h2>{text}{body}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Compose a table; integers are right-aligned, and so are their titles."""
    kinds = [' class="number"' if rows and isinstance(cell, int) else "" for cell in (rows[0] if rows else head)]
    titles = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(head, kinds, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td class="number">{cell:,}</td>' if isinstance(cell, int) else f"<td>{escape(cell)}</td>" for cell in row
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def histogram(title: str, values: Values, note: str, what: str) -> str:
    """Draw a histogram; logarithmic if positive values spread over more than three decades."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not len(finite):
        return ""
    low, high = float(finite.min()), float(finite.max())
    text = f"Median {short(float(np.median(finite)))}, mean {short(float(finite.mean()))}. {note}"
    if len(finite) < len(values):
        text += f" {len(values) - len(finite):,} that are not finite are left out."
    logarithmic = low > 0 and high > 1000 * low
    edges = _edges(finite, low, high, logarithmic)
    counts, _ = np.histogram(finite, edges)
    places = np.log(edges) if logarithmic else edges
    x = _LEFT + (places - places[0]) / (places[-1] - places[0]) * (_WIDTH - _LEFT - 8)
    most, marks = _axis(int(counts.max()))
    bars = [
        f'<rect class="main" x="{a:.1f}" y="{_y(n / most):.1f}" width="{max(b - a - 1, 0.6):.1f}" '
        f'height="{_y(0) - _y(n / most):.1f}"><title>{short(lo)} to {short(hi)}: {n:,} {escape(what)}</title></rect>'
        for a, b, lo, hi, n in zip(x[:-1], x[1:], edges[:-1], edges[1:], counts.tolist(), strict=True)
        if n
    ]
    across = []
    if logarithmic:
        ticks = [10.0**k for k in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        ticks = ticks[:: -(-len(ticks) // 5)]
    else:
        ticks = _ticks(float(edges[0]), float(edges[-1]))
    for tick in ticks:
        place = (math.log(tick) if logarithmic else tick) - places[0]
        across.append((_LEFT + place / (places[-1] - places[0]) * (_WIDTH - _LEFT - 8), short(tick)))
    return section(title, text, _plot(bars, marks, most, across))


def stacked(title: str, note: str, parts: Sequence[tuple[str, Values]], whole: int, what: str) -> str:
    """Draw columns of `whole` rows, each filled by `parts`; many columns are averaged in groups."""
    count = len(parts[0][1])
    if not count:
        return ""
    groups = np.array_split(np.arange(count), min(count, _COLUMNS))
    width = (_WIDTH - _LEFT - 8) / len(groups)
    most, marks = _axis(whole)
    bars, kinds = [], ("main", "more", "rest")
    for number, group in enumerate(groups):
        base, x = 0.0, _LEFT + number * width
        name = f"{what} {group[0]}" + (f" to {group[-1]}" if len(group) > 1 else "")
        values = [float(each[group].mean()) for _, each in parts]
        for kind, (label, _), value in zip(kinds, parts, values, strict=False):
            if value > 0:
                y, base = _y((base + value) / most), base + value
                bars.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width - min(2, width / 5), 0.6):.1f}" '
                    f'height="{value / most * (_HEIGHT - _BOTTOM - _TOP):.1f}">'
                    f"<title>{escape(name)}: {value:,.0f} {escape(label)}</title></rect>"
                )
    ticks = [t for t in _ticks(0, count - 1) if t == int(t)] if count > 1 else [0.0]
    across = [(_LEFT + (tick + 0.5) / count * (_WIDTH - _LEFT - 8), short(tick)) for tick in ticks]
    keys = "".join(
        f'<span class="key {kind}"></span>{escape(label)}' for kind, (label, _) in zip(kinds, parts, strict=False)
    )
    key = f"<p>{keys}</p>" if len(parts) > 1 else ""
    return section(title, note, key + _plot(bars, marks, most, across))


def thumbnails(title: str, note: str, images: Sequence[tuple[str, Values]]) -> str:
    """Show images `[H, W]`, `[H, W, C]` or `[C, H, W]`, uint8, each with a caption."""
    figures = "".join(
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{_png(image)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, image in images
    )
    return section(title, note, f'<div class="images">{figures}</div>', wide=True) if images else ""


def short(value: float) -> str:
    """Format a number in a few characters."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size and abs(value) < 1e15:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    return f"{value:.4g}"


def _plot(bars: Sequence[str], marks: Sequence[float], most: float, across: Sequence[tuple[float, str]]) -> str:
    lines = "".join(
        f'<line class="{"axis" if not mark else "grid"}" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{_y(mark / most):.1f}" '
        f'y2="{_y(mark / most):.1f}"/><text x="{_LEFT - 6}" y="{_y(mark / most) + 4:.1f}" text-anchor="end">'
        f"{short(mark)}</text>"
        for mark in marks
    )
    names = "".join(
        f'<text x="{x:.1f}" y="{_HEIGHT - 7}" text-anchor="{"end" if x > _WIDTH - 30 else "middle"}">{text}</text>'
        for x, text in across
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{lines}{"".join(bars)}{names}</svg>'


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _axis(most: int) -> tuple[float, list[float]]:
    """Return the upper end of an axis from 0 on, and its marks."""
    return max(most, 1), [tick for tick in _ticks(0, max(most, 1), 4) if tick == int(tick)]


def _ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    size = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next(size * k for k in (1, 2, 5, 10) if (high - low) / (size * k) <= count)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _edges(values: npt.NDArray[np.float64], low: float, high: float, logarithmic: bool) -> npt.NDArray[np.float64]:
    if low == high:
        around = max(abs(low) / 2, 0.5)
        return np.linspace(low - around, high + around, 8)
    if logarithmic:
        return np.geomspace(low, high * (1 + 1e-12), _BINS + 1)
    if (values == np.floor(values)).all():  # whole numbers: as many to each bar
        step = max(1.0, math.ceil((high - low + 1) / _BINS))
        return np.arange(low - 0.5, high + step + 0.5, step)
    return np.linspace(low, high, _BINS + 1)


def _png(image: Values) -> str:
    """Encode an image as PNG, in base64; several channels that are no colors are placed side by side."""
    if image.ndim == 3:
        planes = np.moveaxis(image, -1, 0) if image.shape[-1] < min(image.shape[:2]) else image
        image = np.moveaxis(planes, 0, -1) if len(planes) == 3 else np.concatenate([*planes[:4]], axis=1)
    height, width = image.shape[:2]
    rows = np.zeros((height, 1 + image[0].size), np.uint8)  # each begins with its filter, 0
    rows[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if image.ndim == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    chunks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()
