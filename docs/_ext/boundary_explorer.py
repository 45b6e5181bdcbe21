"""The boundary explorer: puts recorded traces and the script that shows them into its page.

`python docs/_ext/boundary_explorer.py` records the traces of all pipelines anew; those of libraries that are not
installed stay as they are.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1]
RECORDED = DOCS / "data" / "explorer.json"
STATIC = ("sb3", "next_step", 3, "truncated")  # what the page shows without JavaScript


class Shown(NamedTuple):
    """A pipeline of the doctor as the page names it."""

    title: str
    about: str
    library: str = ""  # the distribution whose version is recorded; none where relive ships what runs


LOOP = "in a loop over a Gymnasium vector environment that stores every call of step"
OWN = "The library resets its environments, which do not reset themselves: DISABLED is the only mode."
VEC_ENV = (
    "Its VecEnv resets each environment within step and gives the final observation in the infos, as SAME_STEP does. "
    "The environments in it do not reset themselves: they are in mode DISABLED, the only one here."
)
SHOWN = {
    "relive": Shown(
        "relive, behind its Recorder",
        "A relive.ReplayBuffer behind relive.gymnasium.Recorder, which reads the autoreset mode.",
    ),
    "relive-windows": Shown(
        "relive, Windows with n_step",
        "A relive.ReplayBuffer behind its Recorder, with relive.Windows(obs=(-1, 0), action=range(4), n_step=n): the "
        "row shows the newest observation of the window, the targets, and batch.pad: which entries the episode lacks.",
    ),
    "sb3": Shown(
        "Stable-Baselines3, loop by hand",
        f"ReplayBuffer and NStepReplayBuffer {LOOP}, with TimeLimit.truncated in the infos.",
        "stable-baselines3",
    ),
    "sb3-learn": Shown("Stable-Baselines3, DQN.learn", f"DQN.learn in a DummyVecEnv. {VEC_ENV}", "stable-baselines3"),
    "sb3-memory": Shown(
        "Stable-Baselines3, optimize_memory_usage",
        "DQN.learn in a DummyVecEnv, with optimize_memory_usage=True, which takes truncations for ends, as the "
        f"library's documentation says. One-step targets only. {VEC_ENV}",
        "stable-baselines3",
    ),
    "sb3-cleanrl": Shown(
        "CleanRL, Stable-Baselines3's buffer",
        "The loop of CleanRL: dones are the terminations, and the infos say nothing of time limits. CleanRL itself has "
        "SAME_STEP and one-step targets; for n = 3 and n = 5 NStepReplayBuffer takes the buffer's place.",
        "stable-baselines3",
    ),
    "tianshou": Shown("Tianshou, loop by hand", f"PrioritizedVectorReplayBuffer {LOOP}.", "tianshou"),
    "tianshou-collector": Shown("Tianshou, Collector", f"VectorReplayBuffer behind a Collector. {OWN}", "tianshou"),
    "tianshou-ignore-obs-next": Shown(
        "Tianshou, Collector with ignore_obs_next",
        f"VectorReplayBuffer with ignore_obs_next=True behind a Collector. {OWN}",
        "tianshou",
    ),
    "cpprb": Shown(
        "cpprb, loop by hand",
        f"PrioritizedReplayBuffer {LOOP}; done is terminated, and on_episode_end is called at every end.",
        "cpprb",
    ),
    "torchrl": Shown(
        "TorchRL, Collector",
        f"TensorDictReplayBuffer behind a Collector, with MultiStepTransform for n = 3 and n = 5. {OWN}",
        "torchrl",
    ),
    "lerobot": Shown(
        "LeRobot, optimize_memory (stand-in)",
        "A stand-in for LeRobot's buffer with optimize_memory=True, as in its learner. One-step targets only; the "
        "actor resets the robot, so there is one mode.",
    ),
    "fasttd3": Shown(
        "FastTD3 (stand-in)",
        "A stand-in for FastTD3's buffer of tensors, with the observations that Isaac Lab gives by default. The "
        "simulator resets lanes within step, so there is one mode.",
    ),
}


def traced(name: str) -> dict[str, Any]:
    """Record the doctor's present trace of a pipeline.

    Raises:
        MissingExtra: The library is not installed.
    """
    from relive.doctor import pipelines, trace

    pipeline: Any = pipelines.named(name)
    noted: list[dict[float, str]] = []
    if name == "relive-windows":
        pipeline = noting(pipeline, noted)
    found = trace(pipeline, n_steps=1 if name in pipelines.ONE_STEP else (1, 3, 5), name=name).to_dict()
    states = {
        f"{state['autoreset_mode']}/{state['n_step']}/{state['end']}": {
            "items": state["items"],
            "missing": state["missing"],
        }
        for state in found["states"]
    }
    for state, masks in zip(states.values(), noted, strict=bool(noted)):
        state["masks"] = [masks[obs] for obs, *_ in state["items"]]
    return states


def noting(pipeline: Any, noted: list[dict[float, str]]) -> Any:
    """Return a pipeline of `Windows` that notes the masks of its items, by their observations: "10 0001"."""

    class Noting(pipeline):
        def items(self) -> Any:
            batch = self._buffer.read(self._buffer.ids())
            rows = zip(batch.obs[:, -1].ravel().tolist(), batch.pad.obs, batch.pad.action, strict=True)
            noted.append({obs: " ".join("".join(map(str, 1 * pad)) for pad in pads) for obs, *pads in rows})
            return super().items()

    return Noting


def _version(library: str) -> str:
    return f"{library} {importlib.metadata.version(library)}" if library else ""


def record() -> None:
    """Write the traces of all pipelines."""
    from relive.doctor import pipelines, trace
    from relive.doctor._items import CELLS, REMEDIES
    from relive.errors import MissingExtra

    old = json.loads(RECORDED.read_text("utf-8"))["pipelines"] if RECORDED.exists() else {}
    first = trace(pipelines.named("relive"), n_steps=1).to_dict()
    found: dict[str, Any] = {
        "gamma": first["gamma"],
        "steps": first["steps"],
        "probes": {probe: {"cell": CELLS[probe], "remedy": REMEDIES[probe]} for probe in REMEDIES},
        "pipelines": {},
    }
    for name, shown in SHOWN.items():
        about = {"title": shown.title, "about": shown.about}
        try:
            found["pipelines"][name] = {**about, "version": _version(shown.library), "states": traced(name)}
        except MissingExtra as missing:
            sys.stderr.write(f"{name} stays as it was recorded: {missing}\n")
            found["pipelines"][name] = {**old[name], **about}
    text = json.dumps(found, separators=(",", ":"))
    RECORDED.write_text(text.replace('"next_step/', '\n"next_step/').replace('},"', '},\n"') + "\n", "utf-8")


def static_table() -> list[str]:
    """Return the lines of the table that the page shows without JavaScript."""
    data = json.loads(RECORDED.read_text("utf-8"))
    name, mode, n_step, end = STATIC
    lines = ["| # | obs | reward | discount | next_obs | verdict |", "|---|---|---|---|---|---|"]
    for number, item in enumerate(data["pipelines"][name]["states"][f"{mode}/{n_step}/{end}"]["items"], 1):
        obs, reward, discount, next_obs, *rest = item
        verdict = f"**{', '.join(rest[0])}**" if rest else "right"
        lines.append(f"| {number} | {obs} | {reward} | {discount} | {next_obs} | {verdict} |")
    return lines


def add_explorer(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the explorer's page its data, script and style."""
    if pagename.rpartition("/")[2] == "explorer":
        app.add_js_file(None, body=RECORDED.read_text("utf-8"), type="application/json", id="explorer-data")
        app.add_js_file("explorer.js", loading_method="defer")
        app.add_css_file("explorer.css")


def setup(app: Any) -> dict[str, Any]:
    """Connect the extension. Sphinx calls this."""
    app.connect("html-page-context", add_explorer)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    record()
