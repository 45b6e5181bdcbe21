"""What a kill costs: each library saves as its documentation says, is killed, and loads what is left.

docs/saving.md has the table that this makes; run as a program, with tests/support on the path, this writes it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from children import run_program
from depth import LONG, some
from forking import forked
from needs import needs

import relive
from relive._ring import kernels

PAGE = Path(__file__).parents[2] / "docs" / "saving.md"
BEGIN, END = "<!-- kills -->\n", "<!-- end of kills -->\n"
FIRST, LAST = "<!-- ends -->\n", "<!-- end of ends -->\n"
TOP = "| a program with `buffer.autosave(path)` | what `relive.load(path)` finds |\n|---|---|\n"
HEAD = "| | saves by | killed between two saves | killed inside a save |\n|---|---|---|---|\n"
ROWS, WIDTH, BETWEEN, KILLS, MOST_KILLS = 4_000, 256, 100, 6 if LONG else 3, 60


@dataclass(frozen=True)
class Library:
    """A library's buffer.

    Attributes:
        call: How it saves.
        needs: The modules.
        make: A buffer, empty.
        add: Adds the step of a number.
        save: To a path, as documented.
        load: The number of the newest step in what is at a path.
    """

    call: str
    needs: tuple[str, ...]
    make: Callable[[], Any]
    add: Callable[[Any, int], object]
    save: Callable[[Any, str], object]
    load: Callable[[str], int]


def obs_of(number: int) -> np.ndarray:
    return np.full(WIDTH, number, np.float32)


def relive_buffer(storage: Any = None) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((WIDTH,)), action=relive.Field())
    return relive.ReplayBuffer(schema, ROWS, storage=storage, seed=0)


def relive_add(buffer: Any, number: int) -> None:
    flags = {"terminated": False, "truncated": False}
    buffer.add(obs=obs_of(number), action=0, reward=number, next_obs=obs_of(number + 1), **flags)


def newest(buffer: relive.ReplayBuffer) -> int:
    return int(buffer.column("reward").max())


def sb3_make() -> Any:
    spaces, buffers = needs("gymnasium.spaces"), needs("stable_baselines3.common.buffers")
    box = spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)
    return buffers.ReplayBuffer(ROWS, box, spaces.Box(-1, 1, (1,)), handle_timeout_termination=False)


def sb3_add(buffer: Any, number: int) -> None:
    one = np.ones(1)
    buffer.add(obs_of(number)[None], obs_of(number + 1)[None], one[None], one * number, one * 0, [{}])


def sb3_load(path: str) -> int:
    return int(needs("stable_baselines3.common.save_util").load_from_pkl(path).rewards.max())


def tianshou_make() -> Any:
    return needs("tianshou.data").ReplayBuffer(ROWS)


def tianshou_add(buffer: Any, number: int) -> None:
    flags = {"terminated": False, "truncated": False}
    step = {"obs": obs_of(number), "act": 0.0, "rew": float(number), "obs_next": obs_of(number + 1), "info": {}}
    buffer.add(needs("tianshou.data").Batch(**step, **flags))


def tianshou_load(path: str) -> int:
    return int(needs("tianshou.data").ReplayBuffer.load_hdf5(path).rew.max())


def torchrl_make() -> Any:
    data = needs("torchrl.data")
    return data.ReplayBuffer(storage=data.LazyTensorStorage(ROWS), batch_size=1)


def torchrl_add(buffer: Any, number: int) -> None:
    torch, tensordict = needs("torch"), needs("tensordict")
    step = {"observation": torch.full((1, WIDTH), float(number)), "reward": torch.full((1, 1), float(number))}
    buffer.extend(tensordict.TensorDict({**step, "next": {"observation": step["observation"] + 1}}, [1]))


def torchrl_load(path: str) -> int:
    buffer = torchrl_make()
    buffer.loads(path)
    return int(buffer[:]["reward"].max())


def cpprb_make() -> Any:
    env = {"obs": {"shape": WIDTH}, "rew": {}, "next_obs": {"shape": WIDTH}, "done": {}}
    return needs("cpprb").ReplayBuffer(ROWS, env)


def cpprb_add(buffer: Any, number: int) -> None:
    buffer.add(obs=obs_of(number), rew=number, next_obs=obs_of(number + 1), done=0)


def cpprb_load(path: str) -> int:
    buffer = cpprb_make()
    buffer.load_transitions(path)
    return int(buffer.get_all_transitions()["rew"].max())


LIBRARIES = {
    "relive": Library(
        "`buffer.save(path)`", (), relive_buffer, relive_add, lambda b, p: b.save(p), lambda p: newest(relive.load(p))
    ),
    "Stable-Baselines3": Library(
        "`model.save_replay_buffer(path)`", ("stable_baselines3",), sb3_make, sb3_add,
        lambda b, p: needs("stable_baselines3.common.save_util").save_to_pkl(p, b), sb3_load,
    ),
    "Tianshou": Library(
        "`buffer.save_hdf5(path)`", ("tianshou", "h5py"), tianshou_make, tianshou_add,
        lambda b, p: b.save_hdf5(p), tianshou_load,
    ),
    "TorchRL": Library(
        "`buffer.dumps(path)`", ("torchrl",), torchrl_make, torchrl_add, lambda b, p: b.dumps(p), torchrl_load
    ),
    "cpprb": Library(
        "`buffer.save_transitions(path)`", ("cpprb",), cpprb_make, cpprb_add,
        lambda b, p: b.save_transitions(f"{p}.npz"), lambda p: cpprb_load(f"{p}.npz"),
    ),
}  # fmt: skip


class Outcome(NamedTuple):
    """The rest after a kill.

    Attributes:
        saved: The newest step of the last save that came to its end.
        loaded: The newest step of what was loaded; None: it could not be loaded.
    """

    saved: int
    loaded: int | None


def kill(library: Library, path: str, inside: bool, share: float, seconds: float) -> Outcome:
    """Save again and again in a fork, and kill it: that share into a save, or a step after the second one."""
    reading, writing = os.pipe()

    def work() -> None:
        buffer, number = library.make(), 0
        while True:
            for _ in range(BETWEEN if number else ROWS // 2):
                library.add(buffer, number)
                number += 1
            os.write(writing, b"s")
            library.save(buffer, path)
            os.write(writing, b"d")
            if not inside and number > ROWS // 2 + BETWEEN:
                library.add(buffer, number)  # and no further save begins
                os.write(writing, b"p")
                signal.pause()

    with forked(work, endless=True):
        os.close(writing)
        done = b""
        while done[-1:] != b"p" and not (inside and done == b"sdsds"):
            done += (more := os.read(reading, 1))
            assert more, "the child has ended"
        time.sleep(share * seconds if inside else 0.0)
    done += os.read(reading, 16)  # it may have come to its end
    os.close(reading)
    saved = ROWS // 2 + (done.count(b"d") - 1) * BETWEEN - 1
    try:
        return Outcome(saved, library.load(path))
    except Exception:
        return Outcome(saved, None)


def seconds_of(library: Library, path: str) -> float:
    """Time a save that is not the first."""
    buffer = library.make()
    for number in range(ROWS // 2):
        library.add(buffer, number)
    for _ in range(2):
        begun = time.perf_counter()
        library.save(buffer, path)
        taken = time.perf_counter() - begun
    return taken


def row(name: str, folder: Path) -> str:
    """Make the table's row of a library."""
    library, rng = LIBRARIES[name], random.Random(0)
    for module in library.needs:
        needs(module)
    texts, seconds = [], seconds_of(library, str(folder / f"{name}-first"))
    for inside in (False, True):
        found, patient = list[Outcome](), inside and name != "relive"
        while len(found) < KILLS or (patient and len(found) < MOST_KILLS and all(each.loaded for each in found)):
            turn = len(found)
            path = folder / f"{name}-{inside}-{turn}"
            found.append(kill(library, str(path), inside, rng.uniform(0.1, 0.9), seconds))
            shutil.rmtree(path, ignore_errors=True)
        if any(each.loaded is None for each in found):
            texts.append("**all steps**: what is left may not load")
        elif all(each.loaded is not None and each.loaded >= each.saved for each in found):
            texts.append("what came since the last save")
        else:
            texts.append(f"what is loaded is {found}")
    return f"| {name} | {library.call} | {texts[0]} | {texts[1]} |\n"


# What each program does with `made()`, a buffer that is saved into the folder `saves`, until it ends.
PROGRAMS = {
    "holds the buffer in a local variable, and ends": """
        def main():
            fill(made())
        main()
    """,
    "ends by an exception, or by `sys.exit`": """
        def main():
            fill(made())
            sys.exit(1)
        main()
    """,
    "drops the buffer, and is killed later": """
        def main():
            fill(made())
        main()
        os.kill(os.getpid(), signal.SIGKILL)
    """,
    "calls `os.chdir`": """
        buffer = made()
        os.mkdir("other")
        os.chdir("other")
        fill(buffer)
    """,
    "calls `close()` in the handler of a signal, which comes in the middle of `sample`": """
        def reward(achieved, desired, info):
            os.kill(os.getpid(), signal.SIGTERM)
            return np.zeros(len(achieved))
        buffer = made(item=relive.Hindsight(reward=reward))
        def stop(*_):
            buffer.stats(), saving().close(), sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        fill(buffer)
        buffer.sample(4)
    """,
    "is started twice": """
        buffer = made()
        for _ in range(2):
            twin = relive.load("saves", item=buffer.item)
            try:
                twin.autosave("saves")
            except relive.ReliveError:
                fill(buffer, 50)
    """,
    "is killed while the `Writer` of another process fills its `Mapped` buffer": """
        buffer = made(storage=relive.Mapped("ring"))
        def write(writer):
            while True:
                fill(writer, 1)
        actor = multiprocessing.get_context("fork").Process(target=write, args=(buffer.writer(),), daemon=True)
        actor.start()
        while saving().stats().saves < 6:
            time.sleep(0.05)
        time.sleep(0.1)
        actor.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    """,
}
PROGRAM = """
import multiprocessing, os, signal, sys, time
import numpy as np, relive
goals = {name: relive.Field((2,)) for name in ("achieved_goal", "desired_goal")}
schema = relive.Schema(obs=goals, action=relive.Field((), "float64"))
kept = []
def made(**choices):
    buffer = relive.ReplayBuffer(schema, 1_000_000, seed=0, **choices)
    kept.append(buffer.autosave("saves", every=EVERY))
    return buffer
def saving():
    return kept[0]
def fill(buffer, steps=100):
    for t in range(steps):
        obs = {name: np.full((1, 2), t) for name in goals}
        no, zero = np.zeros(1, bool), np.zeros(1)
        end = no if steps == 1 else [t == steps - 1]
        buffer.add(obs=obs, action=[time.monotonic()], reward=zero, next_obs=obs, terminated=no, truncated=end)
"""


def end(name: str, folder: Path) -> str:
    """Run a program in a folder, and make its row: what is saved there when it has ended."""
    every = 0.2 if "Mapped" in name else 1000.0
    text = PROGRAM.replace("EVERY", f"{every}") + textwrap.dedent(PROGRAMS[name])
    with contextlib.chdir(folder):
        run_program(text, timeout=60)
    item = relive.Transitions()
    saved = relive.load(folder / "saves", item=item, storage=relive.Ram())
    if (folder / "ring").exists():
        with relive.open(folder / "ring") as ring:
            times = ring.column("action")[ring.column("ids") >= 0]
            lost = float((times.max() - saved.column("action").max()) / (times.max() - times.min()))
        found = "all but the last interval" if lost < 0.5 else f"all but the last {lost:.0%}"
    else:
        found = "all steps" if len(saved) == 100 else f"{len(saved)} of 100 steps"
    return f"| {name} | {found} |\n"


@pytest.mark.parametrize("inside", [False, True])
def test_mapped_loses_nothing(inside: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "steps")

    def load(path: str) -> int:
        with relive.open(path) as buffer:
            return newest(buffer)

    def write() -> relive.ReplayBuffer:
        return relive_buffer(relive.Mapped(path))

    saved, loaded = kill(Library("", (), write, relive_add, lambda *_: None, load), path, inside, 0.0, 0.0)
    assert loaded >= saved if inside else loaded == saved + 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", some(LIBRARIES, 1))
def test_table(name: str, tmp_path: Path) -> None:
    """Check that the page tells each library's outcome; in every row of relive no save is lost."""
    made = row(name, tmp_path)
    assert made in PAGE.read_text(), made


@pytest.mark.parametrize("name", PROGRAMS)
def test_ends(name: str, tmp_path: Path) -> None:
    """Check that the page tells what each program leaves."""
    if not kernels.is_native() and "Mapped" in name:
        pytest.skip("the NumPy kernels share nothing")
    made = end(name, tmp_path)
    assert made in PAGE.read_text(), made


def replace(begin: str, table: str, last: str) -> None:
    """Put a table on the page."""
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(before + begin + table + last + rest.partition(last)[2])
    print(table)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        found = []
        for number, program in enumerate(PROGRAMS):
            (Path(place) / f"{number}").mkdir()
            found.append(end(program, Path(place) / f"{number}"))
        replace(FIRST, TOP + "".join(found), LAST)
        replace(BEGIN, HEAD + "".join(row(name, Path(place)) for name in LIBRARIES), END)
