"""The picture of an episode: spread, z-score, position and profit so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from relive_lab.envs.features import Observed

# Four hues that stay apart for colour-blind eyes (Okabe and Ito), and greys for everything that is not data.
BLUE, PURPLE, GREEN, RED = "#0072B2", "#7F5AA6", "#00815F", "#D55E00"
INK, FRAME, GRID, SHADE = "#2B2B2B", "#9A9A9A", "#E6E6E6", "#FBE3D4"
SIZE_INCHES, DPI = (8.0, 5.0), 100


class Renderer:
    """Draws an episode into one Matplotlib figure, in a window or off screen.

    Args:
        window: True shows the figure with pyplot; False draws it with Agg and touches no global state.
        fps: pictures per second in the window.
    """

    def __init__(self, *, window: bool, fps: int) -> None:
        self._fps = fps
        self._pyplot: Any = None
        if window:
            from matplotlib import pyplot

            self._pyplot = pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        if window:
            self._figure: Any = self._pyplot.figure(figsize=SIZE_INCHES, dpi=DPI)
        else:
            self._figure = Figure(figsize=SIZE_INCHES, dpi=DPI)
            FigureCanvasAgg(self._figure)
        # Fixed margins: a layout engine would move the panels from frame to frame as tick labels change their width.
        margins = {"left": 0.06, "right": 0.975, "bottom": 0.095, "top": 0.875, "wspace": 0.15, "hspace": 0.24}
        self._axes = self._figure.subplots(2, 2, sharex=True, gridspec_kw=margins).ravel()

    def draw(self, episode: Observed, positions: list[float], profits: list[float]) -> None:
        """Draw the bars reached so far; `positions` and `profits` begin with the flat start."""
        last = len(positions) - 1
        spread, z, regime = episode.spread[: last + 1], episode.z[: last + 1], episode.regime[: last + 1]
        for axis in self._axes:
            _clear(axis, horizon=len(episode.z) - 1)
            # A move ends at its bar, so the shade reaches back to the bar before.
            for first, end in _spans(regime):
                axis.axvspan(first - 1, end - 1, color=SHADE, lw=0, zorder=0)
        self._line(0, "Spread", spread, BLUE, least=4.0)
        self._line(1, "z-score", z, PURPLE, least=3.0)
        for level in (-2, 2):
            self._axes[1].axhline(level, color=FRAME, lw=0.8, ls=(0, (4, 4)), zorder=1)
        # A position is chosen at the bar before and held up to this one, hence the step to the left.
        self._axes[2].fill_between(range(last + 1), positions, step="pre", color=GREEN, alpha=0.25, lw=0, zorder=2)
        self._line(2, "Position", np.array(positions), GREEN, least=1.0, drawstyle="steps-pre")
        self._line(3, "Profit", np.array(profits), RED, least=2.0)
        for axis in self._axes[2:]:
            axis.set_xlabel("bar", color=INK, fontsize=9)
        note = "   (shaded: break or dislocation)" if regime.any() else ""
        title = f"{episode.label}   |   bar {last} of {len(episode.z) - 1}{note}"
        self._figure.suptitle(title, x=0.06, y=0.975, ha="left", fontsize=10, color=INK)

    def _line(self, panel: int, name: str, values: npt.NDArray[Any], color: str, least: float, **kw: Any) -> None:
        """Draw one series, its name on the left and its newest value on the right; `least` keeps the scale calm."""
        axis = self._axes[panel]
        axis.plot(values, color=color, lw=1.6, zorder=3, **kw)
        axis.plot(len(values) - 1, values[-1], "o", color=color, ms=4, zorder=4, clip_on=False)
        axis.axhline(0, color=FRAME, lw=0.8, zorder=1)
        axis.set_ylim(1.12 * min(-least, float(values.min())), 1.12 * max(least, float(values.max())))
        axis.set_title(name, loc="left", fontsize=10, fontweight="bold", color=INK)
        axis.set_title(f"{values[-1]:+.2f}", loc="right", fontsize=10, color=color)

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Return the picture, uint8 `[500, 800, 3]`."""
        self._figure.canvas.draw()
        return np.array(self._figure.canvas.buffer_rgba(), dtype=np.uint8)[..., :3].copy()

    def show(self) -> None:
        """Bring the picture to the window and wait for one frame, so that it can be watched."""
        self._figure.show()
        self._figure.canvas.draw_idle()
        self._figure.canvas.start_event_loop(1.0 / self._fps)

    def close(self) -> None:
        """Close the window; closing twice is fine."""
        if self._pyplot is not None:
            self._pyplot.close(self._figure)


def _spans(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the stretches of True as half-open index ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _clear(axis: Any, horizon: int) -> None:
    """Empty a panel and give it the frame that all four share."""
    axis.clear()
    axis.set_xlim(0, horizon)
    axis.margins(x=0)
    axis.grid(color=GRID, lw=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=INK, labelsize=8, length=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FRAME)
