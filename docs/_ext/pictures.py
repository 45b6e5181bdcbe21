"""The pages' pictures as SVG, each for light and dark screens: `python docs/_ext/pictures.py` writes all anew.

Arcs are the boundary explorer's: what its recorded traces say of three short episodes. A test compares the files.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
FOLDER = DOCS / "images"
LIGHT = {
    "ink": "#1f2328", "soft": "#57606a", "line": "#c4ccd4", "card": "#f6f8fa", "right": "#17692c", "wrong": "#b3261e",
    "e0": "#0a58ad", "e1": "#7a35c9", "e2": "#8d4b00", "e3": "#55606b",
}  # fmt: skip
DARK = {
    "ink": "#e6edf3", "soft": "#a9b4c0", "line": "#4a545f", "card": "#1d2329", "right": "#63d67b", "wrong": "#ff9a90",
    "e0": "#7bbcff", "e1": "#cbaaff", "e2": "#ffb76b", "e3": "#a9b4c0",
}  # fmt: skip
# Panels: a pipeline of the explorer, its state, and the line above.
ARCS = {
    "arcs": [
        ("sb3", "next_step/3/truncated", "Stable-Baselines3, loop by hand: windows run across resets"),
        ("relive", "next_step/3/truncated", "relive, the same loop with its Recorder"),
    ],
    "arcs-reset": [
        ("sb3", "next_step/1/truncated", "NEXT_STEP: the call that only resets is stored as a step"),
        ("relive", "next_step/1/truncated", "Recorder leaves it out"),
    ],
    "arcs-next-episode": [
        ("fasttd3", "same_step/1/truncated", "SAME_STEP: next_obs is the next episode's first observation"),
        ("relive", "same_step/1/truncated", "The final observation has a row of its own"),
    ],
    "arcs-terminal": [
        ("torchrl", "disabled/3/terminated", "n = 3, terminated: a value is added after the end"),
        ("relive", "disabled/3/terminated", "discount is 0 for each window that reaches the end"),
    ],
}


class Sheet:
    """Marks of one picture in one palette."""

    def __init__(self, colors: dict[str, str]) -> None:
        self.colors, self.marks = colors, list[str]()

    def text(self, x: float, y: float, words: str, *, size: float = 13, ink: str = "ink", **more: str) -> None:
        """Write words."""
        rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        self.marks.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{self.colors[ink]}"{rest}>{escape(words)}</text>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, *, edge: str = "line", fill: str = "card", r: float = 6
    ) -> None:
        """Draw a rectangle."""
        self.marks.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{r:g}" fill="{self.colors.get(fill, fill)}" '
            f'stroke="{self.colors[edge]}" stroke-width="1.5"/>'
        )

    def labelled(self, x: float, y: float, w: float, h: float, title: str, note: str = "", edge: str = "line") -> None:
        """Draw a box with a title, and a note below it."""
        self.box(x, y, w, h, edge=edge)
        middle = {"text_anchor": "middle"}
        self.text(x + w / 2, y + h / 2 + (-3 if note else 5), title, font_weight="600", **middle)
        if note:
            self.text(x + w / 2, y + h / 2 + 15, note, size=11.5, ink="soft", **middle)

    def path(self, d: str, ink: str = "soft", *, dash: str = "", width: float = 1.8, arrow: bool = False) -> None:
        """Draw a line, with an arrow at its end if asked for."""
        more = (f' stroke-dasharray="{dash}"' if dash else "") + (f' marker-end="url(#{ink})"' if arrow else "")
        self.marks.append(f'<path d="{d}" fill="none" stroke="{self.colors[ink]}" stroke-width="{width:g}"{more}/>')

    def dot(self, x: float, y: float, ink: str, r: float = 4.5, fill: str = "") -> None:
        """Draw a dot."""
        inside = self.colors.get(fill or ink, fill)
        self.marks.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" fill="{inside}" stroke="{self.colors[ink]}" stroke-width="1.8"/>'
        )

    def svg(self, width: int, height: int, title: str) -> str:
        """Return the picture."""
        arrows = "".join(
            f'<marker id="{ink}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{self.colors[ink]}"/></marker>'
            for ink in ("soft", "right", "wrong")
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f"role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">"
            f"<title>{escape(title)}</title><defs>{arrows}</defs>\n" + "\n".join(self.marks) + "\n</svg>\n"
        )


def arcs(panels: list[tuple[str, str, str]], colors: dict[str, str]) -> str:
    """Draw what buffers store of three episodes: an arc from each item's observation to that of its target."""
    data = json.loads((DOCS / "data" / "explorer.json").read_text("utf-8"))
    places, x = dict[int, float](), 44.0
    for episode, count in enumerate((5, 4, 6)):
        for step in range(count):
            places[100 * episode + step] = x
            x += 42
        x += 34
    places[300], width = x, int(x) + 44
    sheet, top = Sheet(colors), 0.0
    for name, state, title in panels:
        found = data["pipelines"][name]["states"][state]
        wrong = [item for item in found["items"] if len(item) > 4]
        far = max(_span(item, places) for item in found["items"])
        ground = top + 52 + far * 0.3
        verdict = f"✕ {len(wrong)} of {len(found['items'])} wrong" if wrong else f"✓ all {len(found['items'])} right"
        sheet.text(20, top + 24, title, size=14, font_weight="600")
        ink = "wrong" if wrong else "right"
        sheet.text(width - 20, top + 24, verdict, size=14, ink=ink, font_weight="600", text_anchor="end")
        for obs, next_obs, bad in sorted(_ends(item) for item in found["items"]):
            _arc(sheet, places, obs, next_obs, ground, bad)
        _ground(sheet, places, ground)
        top = ground + 48
    return sheet.svg(width, int(top), "; ".join(title for _, _, title in panels))


def _ends(item: list[Any]) -> tuple[int, int, bool]:
    bad = len(item) > 4
    return item[0], item[3], bad


def _span(item: list[Any], places: dict[int, float]) -> float:
    obs, next_obs, _ = _ends(item)
    return abs(_at(places, next_obs) - places[obs])


def _at(places: dict[int, float], obs: int) -> float:
    return places.get(obs, places[300])


def _arc(sheet: Sheet, places: dict[int, float], obs: int, next_obs: int, ground: float, bad: bool) -> None:
    begin, end = places[obs], _at(places, next_obs)
    high = ground - 12 - abs(end - begin) * 0.5
    ink = "wrong" if bad else "soft"
    sheet.path(
        f"M{begin:g} {ground - 7:g}Q{(begin + end) / 2:g} {high:g} {end:g} {ground - 8:g}",
        ink, dash="6 4" if bad else "", width=2.4 if bad else 1.5, arrow=True,
    )  # fmt: skip
    if bad:
        sheet.text(
            (begin + end) / 2,
            (high + ground) / 2 - 8,
            "✕",
            size=13,
            ink="wrong",
            text_anchor="middle",
            font_weight="700",
        )


def _ground(sheet: Sheet, places: dict[int, float], ground: float) -> None:
    lasts = {0: 4, 100: 103, 200: 205}
    for episode, (first, last) in enumerate(lasts.items()):
        sheet.path(f"M{places[first]:g} {ground:g}H{places[last]:g}", f"e{episode}", width=2)
        sheet.text(places[first], ground + 36, f"episode {episode}", size=12, ink=f"e{episode}", font_weight="600")
    for obs, x in places.items():
        if obs < 300:
            final = obs in lasts.values()
            sheet.dot(x, ground, f"e{obs // 100}", fill="card" if final else "")
            sheet.text(x, ground + 20, str(obs), size=11.5, ink="soft", text_anchor="middle")


def loop(colors: dict[str, str]) -> str:
    """Draw the way of a step: environments, recorder, buffer, batch, learner."""
    sheet = Sheet(colors)
    names = {
        "environments": "step(action)",
        "Recorder": "leaves resets out",
        "ReplayBuffer": "schema, item, sampler",
        "Batch": "reward, discount, ids",
        "your learner": "r + discount * V",
    }
    for number, (name, note) in enumerate(names.items()):
        sheet.labelled(16 + 174 * number, 24, 150, 62, name, note, "right" if name == "ReplayBuffer" else "line")
        if number:
            sheet.path(f"M{16 + 174 * number - 23} 55H{16 + 174 * number - 2}", arrow=True)
    sheet.path("M786 88V122H440V92", "right", arrow=True)
    sheet.text(613, 140, "update_priorities(batch.ids, td_error)", size=12, ink="right", text_anchor="middle")
    return sheet.svg(
        880, 154, "Environments, a recorder, the replay buffer, a batch, the learner; priorities come back"
    )


def sequence(colors: dict[str, str]) -> str:
    """Draw a sequence: burn-in, the steps that are learned, and the end of an episode."""
    sheet = Sheet(colors)
    for t in range(12):
        x = 24 + t * 66
        kind = "e1" if t < 4 else "e0" if t < 9 else "line"
        sheet.box(x, 40, 56, 44, edge=kind)
        sheet.text(x + 28, 67, f"t + {t}" if t < 9 else "pad", ink="ink" if t < 9 else "soft", text_anchor="middle")
    for begin, end, words, ink in ((0, 4, "burn_in=4: warms up the state", "e1"), (4, 9, "learned: mask 1", "e0"),
                                   (9, 12, "after the end: mask 0", "soft")):  # fmt: skip
        left, right = 24 + begin * 66, 24 + end * 66 - 10
        sheet.path(f"M{left} 96V104H{right}V96", ink)
        sheet.text((left + right) / 2, 122, words, size=12, ink=ink, text_anchor="middle")
    sheet.text(24, 26, "Sequences(length=8, burn_in=4)", font_weight="600")
    sheet.path("M613 30V94", "wrong", dash="5 3")
    sheet.text(613, 22, "the episode ends", size=12, ink="wrong", text_anchor="middle")
    return sheet.svg(824, 136, "A sequence of burn-in steps, learned steps, and padding after an episode's end")


def processes(colors: dict[str, str]) -> str:
    """Draw actors that write to shared memory, and a learner that samples."""
    sheet = Sheet(colors)
    for number in range(3):
        sheet.labelled(20, 20 + 68 * number, 190, 52, f"actor {number}", f"buffer.writer([{number}])")
        sheet.path(f"M212 {46 + 68 * number}H328", arrow=True)
    sheet.labelled(332, 20, 210, 188, "ReplayBuffer", "storage=relive.Shared()", "right")
    sheet.labelled(662, 52, 198, 56, "learner", "buffer.sample(256)")
    sheet.labelled(662, 130, 198, 56, "a reader", "relive.open(name)")
    sheet.path("M544 80H658", arrow=True)
    sheet.path("M544 158H658", arrow=True)
    sheet.text(270, 38, "add", size=12, ink="soft", text_anchor="middle")
    sheet.text(602, 72, "sample", size=12, ink="soft", text_anchor="middle")
    return sheet.svg(880, 228, "Three actors add to a buffer in shared memory; a learner and a reader sample from it")


def saves(colors: dict[str, str]) -> str:
    """Draw saves over time, a kill, and what is lost."""
    sheet = Sheet(colors)
    sheet.path("M30 70H850", width=2)
    for number in range(4):
        x = 90 + 180 * number
        sheet.box(x, 56, 46, 28, edge="right")
        sheet.text(x + 23, 75, "save", size=12, ink="right", text_anchor="middle")
        sheet.text(x + 23, 44, f"{number} s", size=12, ink="soft", text_anchor="middle")
    sheet.path("M770 34V98", "wrong", width=2.4)
    sheet.text(770, 26, "kill -9", ink="wrong", text_anchor="middle", font_weight="600")
    sheet.path("M678 100V108H770V100", "wrong")
    sheet.text(724, 126, "lost: what came after the last save", size=12, ink="wrong", text_anchor="middle")
    sheet.path("M92 100V108H674V100", "right")
    sheet.text(380, 126, "relive.load(path) resumes bit-for-bit", size=12, ink="right", text_anchor="middle")
    return sheet.svg(880, 140, "An autosave each second; a kill loses what came after the last complete save")


def cost(colors: dict[str, str]) -> str:
    """Draw what replay costs in one training step, for each library."""
    found = {each["name"]: each for each in map(json.loads, _questions())}["behind_learner"]["peers"]
    sheet, top = Sheet(colors), 56.0
    sheet.text(16, 26, "Replay in one training step, 1,000,000 transitions, 256 sampled", size=15, font_weight="600")
    for key, title in (
        ("plain-learner", "add a step, sample uniformly"),
        ("cycle-learner", "add a step, sample by priority, update priorities"),
    ):
        bars = [
            (NAMES[name], each["cells"][key]["median"])
            for name, each in found.items()
            if name in NAMES and key in each["cells"]
        ]
        sheet.text(16, top, f"{title} (µs, less is better)", size=12.5, ink="soft")
        for number, (name, value) in enumerate(sorted(bars, key=lambda bar: bar[1])):
            y, own = top + 12 + 25 * number, name == "relive"
            sheet.text(
                150, y + 14, name, ink="ink" if own else "soft", text_anchor="end", font_weight="600" if own else "400"
            )
            length = value * 580 / 1200
            ink = colors["right" if own else "line"]
            sheet.marks.append(f'<rect x="160" y="{y:g}" width="{length:.1f}" height="19" rx="3" fill="{ink}"/>')
            sheet.text(168 + length, y + 14, f"{value:,.0f}", size=12, font_weight="600" if own else "400")
        top += 12 + 25 * len(bars) + 34
    missing = [NAMES[name] for name, each in found.items() if name in NAMES and "cycle-learner" not in each["cells"]]
    sheet.text(16, top - 16, f"{' and '.join(missing)}: no prioritized sampling", size=12, ink="soft")
    return sheet.svg(820, int(top), "Microseconds of replay in one training step, for each library")


def _questions() -> list[str]:
    lines = (DOCS / "data" / "benchmarks.json").read_text("utf-8").splitlines()
    return [line.rstrip(",") for line in lines if line.startswith('{"name"')]


NAMES = {
    "relive": "relive", "numpy": "NumPy by hand", "sb3": "Stable-Baselines3", "cpprb": "cpprb", "tianshou": "Tianshou",
    "flashbax": "Flashbax (JAX)", "rlox": "rlox", "torchrl": "TorchRL",
}  # fmt: skip
DRAWN = {"loop": loop, "sequence": sequence, "processes": processes, "saves": saves, "cost": cost}


def pictures() -> dict[str, str]:
    """Return the text of each file by its name."""
    found = {}
    for scheme, colors in (("", LIGHT), ("-dark", DARK)):
        found |= {f"{name}{scheme}.svg": arcs(panels, colors) for name, panels in ARCS.items()}
        found |= {f"{name}{scheme}.svg": draw(colors) for name, draw in DRAWN.items()}
    return found


if __name__ == "__main__":
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, "utf-8")
