"""A process that opens hostile directories in every way there is, and says what became of each.

`python opened.py HOME EVERY PART PARTS` attacks every PARTS-th of the list, from PART on; a line of JSON for each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import resource
import shutil
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opened_saves
import rich
import torch  # noqa: F401  (what RLinf's draws need is part of what is there before)
import tyro
from depth import LONG
from make_attacks import CANARY, Attack, attacks
from rollouts import leaves, simple

from relive import cli, trajectories
from relive._ring import kernels
from relive.errors import ReliveError, ReliveWarning
from relive.trajectories import TrajectoryReplayBuffer

with contextlib.suppress(ImportError), kernels.use("native"):  # what its import compiles is no attack's doing
    pass

RUN = ("pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen")
RUN += ("ctypes.dlopen", "socket.connect", "os.spawn", "code.__new__")
ALWAYS, SHARE = ("load", "verify"), 1 if LONG else 4  # of the other ways each attack is given every so many, in turn
READERS = 16  # every so many of RLinf's directories are given those ways that start a process
COMMANDS = 4  # every so many attacks `relive inspect` and `relive verify` are given them, and the functions each
PATHS = {"open": 1, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2}
PATHS |= {"os.truncate": 1, "os.chmod": 1, "os.listdir": 1, "os.scandir": 1, "sqlite3.connect": 1, "shutil.rmtree": 1}
SAMPLES = 48


class Watch:
    """A watch on Python's audit events, while it is asked to look."""

    def __init__(self, home: Path) -> None:
        roots = [sys.prefix, sys.base_prefix, *sys.path, os.path.dirname(trajectories.__file__)]
        self.python = tuple({os.path.realpath(root) for root in roots if root} | set(roots) - {""})
        self.libraries = tuple(str(Path(module.__file__).parent) for module in (tyro, dataclasses, rich))
        # Home itself is synced when a directory is made in it.
        self.home = str(home)
        self.allowed = tuple(str(home / name) for name in ("case", "made", "aside", "good_relive"))
        self.seen: list[str] = []
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in RUN and not (event == "marshal.loads" and self._imported()) and not self._reader(event, arguments):
            self.seen.append(f"{event} {arguments!r:.80}")
        elif event in ("exec", "compile"):
            name = getattr(arguments[0], "co_filename", None) if event == "exec" else arguments[1]
            if not str(name).startswith(self.python) and not self._generated():
                self.seen.append(f"{event} {name!r:.80}")
        for path in arguments[: PATHS.get(event, 0)]:
            if not self._fine(path):
                self.seen.append(f"{event} {path!r:.80}")

    def _reader(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Return True if the process is started that reads RLinf's files within limits."""
        return event == "subprocess.Popen" and list(arguments[1][:3]) == [sys.executable, "-I", "-B"]

    def _imported(self) -> bool:
        """Return True if Python reads the compiled form of one of its own modules."""
        return "importlib" in sys._getframe(2).f_code.co_filename

    def _generated(self) -> bool:
        """Return True if a library makes a class from text, as `dataclasses` does."""
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename in ("<string>", __file__):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(self.libraries)

    def _fine(self, path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return True
        name = os.fsdecode(path).removeprefix("file:").removesuffix("?mode=ro")
        if "/" not in name:  # of an open directory
            return name not in ("", "..")
        if ".." in name.split("/"):
            return False
        own = name == self.home or any(name == root or name.startswith(root + "/") for root in self.allowed)
        return own or name.startswith((*self.python, "/proc/", "/sys/", "/dev/null"))


def rows_of(batch: Any) -> set[bytes]:
    """Return every row of a batch, with the names and dtypes of its fields."""
    found = sorted(leaves(batch))
    names = repr([(name, array.dtype.name, array.shape[1:]) for name, array in found]).encode()
    parts = [np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for _, array in found]
    return {names + row.tobytes() for row in np.concatenate(parts, axis=1)}


class Victim:
    """All ways into a directory."""

    def __init__(self, home: Path) -> None:
        self.home, self.case, self.made = home, home / "case", home / "made"
        self.good = {kind: home / f"good_{kind}" for kind in ("relive", "pt")}
        os.umask(0o077)
        (home / "aside").mkdir()
        tempfile.tempdir = str(home / "aside")  # where an index is copied to before it is read
        with TrajectoryReplayBuffer(self.good["relive"], seed=1) as buffer:
            buffer.add_trajectories([simple(k) for k in range(3)])
        with TrajectoryReplayBuffer(seed=1, trajectory_format="pt") as buffer:
            buffer.load_checkpoint(self.good["relive"])
            buffer.save_checkpoint(self.good["pt"])
            self.rows = rows_of(buffer.sample(2000))
        self.good["saved"] = home / "good_saved"
        opened_saves.make(self.good["saved"])
        self.watch = Watch(home)
        self.count = 0

    def ways(self, kind: str) -> dict[str, Callable[[], Any]]:
        case, made = self.case, self.made
        if kind == "saved":
            return opened_saves.ways(case, made)
        return {
            "load": lambda: self.drawn(None, 0),
            "load, cached": lambda: self.drawn(None, 9),
            "load into a directory": lambda: self.drawn(made, 9),
            "inspect": lambda: trajectories.inspect(case) and None,
            "verify": lambda: trajectories.verify(case),
            "convert": lambda: self.again(lambda: trajectories.convert(case, made)),
            "convert to pt": lambda: self.again(lambda: trajectories.convert(case, made, "pt")),
            "merge": lambda: self.again(lambda: trajectories.merge([case, self.good["relive"]], made)),
            "relive inspect": lambda: self.command("inspect"),
            "relive verify": lambda: self.command("verify"),
            "save onto": self.saved,
            "open": lambda: self.opened(case),
        }

    def drawn(self, own: Path | None, cache: int) -> None:
        with TrajectoryReplayBuffer(own, sample_window_size=0, cache_size=cache) as buffer:
            buffer.load_checkpoint(self.case)
            self.sampled(buffer)

    def opened(self, path: Path, cache: int = 0) -> None:
        with TrajectoryReplayBuffer(path, sample_window_size=0, cache_size=cache) as buffer:
            self.sampled(buffer)
            buffer.add_trajectories([simple(0)])

    def sampled(self, buffer: TrajectoryReplayBuffer) -> None:
        for _ in range(3):
            other = rows_of(buffer.sample(SAMPLES)) - self.rows
            if other:
                raise AssertionError(f"{len(other)} other rows, as {next(iter(other))[:150]!r}")

    def again(self, write: Callable[[], int]) -> None:
        write()
        with TrajectoryReplayBuffer(sample_window_size=0, cache_size=0) as buffer:
            buffer.load_checkpoint(self.made)
            self.sampled(buffer)

    def saved(self) -> None:
        with TrajectoryReplayBuffer(seed=1) as buffer:
            buffer.load_checkpoint(self.good["relive"])
            buffer.save_checkpoint(self.case)

    def command(self, name: str) -> None:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cli.main([name, str(self.case)])
        if status not in (0, 1, 2) or "Traceback" in output.getvalue():
            raise AssertionError(output.getvalue()[-200:])

    def clean(self) -> None:
        for path in self.home.iterdir():
            if not path.name.startswith(("good_", "aside")):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def lay(self, attack: Attack | None, kind: str) -> None:
        os.umask(0o077)
        self.clean()
        shutil.copytree(self.good[kind], self.case)
        if attack is not None:
            attack.do(self.case)
        os.umask(0)

    def attacked(self, attack: Attack | None, kind: str) -> Iterator[dict[str, Any]]:
        """Try each way into the directory; yield the outcome, its duration, and its faults."""
        self.lay(attack, kind)
        self.count += 1
        for number, (name, way) in enumerate(self.ways(kind).items()):
            if attack is not None and name not in ALWAYS and (number + self.count) % SHARE:
                continue
            if name.startswith("relive ") and attack is not None and LONG and self.count % COMMANDS:
                continue
            if kind == "pt" and attack is not None and self.count % READERS and name.endswith(("inspect", "verify")):
                continue
            if name == "save onto" and kind != "saved" and (kind == "pt" or (attack is not None and attack.plain)):
                continue
            if name == "open":
                self.lay(attack, kind)
            shutil.rmtree(self.made, ignore_errors=True)
            yield {"way": name, **self.tried(way, attack)}
            if name == "save onto":
                self.lay(attack, kind)

    def tried(self, way: Callable[[], Any], attack: Attack | None) -> dict[str, Any]:
        problems: list[str] = []
        outcome, found = "fine", None
        started = time.process_time()  # of this process: others may keep the cores
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.watch.on = True
            try:
                found = way()
            except ReliveError as error:
                outcome = f"{type(error).__name__}: {error}"[:160]
            except BaseException as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                problems.append(f"{type(error).__name__}: {error} in {last.filename}:{last.lineno}"[:300])
            finally:
                self.watch.on = False
        seconds = time.process_time() - started
        problems += [f"a warning: {one.message}"[:200] for one in told if one.category is not ReliveWarning]
        problems += [f"was seen to {event}" for event in dict.fromkeys(self.watch.seen)]
        self.watch.seen.clear()
        if found == [] and attack is not None and attack.noticed:
            problems.append("verify finds nothing")
        problems += self.left()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"outcome": outcome, "problems": problems, "seconds": seconds, "peak": peak}

    def left(self) -> list[str]:
        problems = []
        for path in (self.case, self.made):
            for at in [path, *path.glob("**/*")] if path.exists() else []:
                mode = at.lstat().st_mode
                if stat.S_IMODE(mode) & 0o077 and not stat.S_ISLNK(mode) and not stat.S_ISSOCK(mode):
                    problems.append(f"{at.name} with the mode {stat.S_IMODE(mode):o}")
        if (self.home / CANARY).exists() or (self.case / CANARY).exists() or os.path.exists(CANARY):
            problems.append("the canary")
        outside = self.home / "outside"
        if not problems and outside.exists() and outside.stat().st_nlink > 2:
            problems.append("a link to a file outside")
        return problems


def main(home: str, every: str, part: str, parts: str) -> None:
    victim = Victim(Path(home))
    for kind in [*victim.good, *victim.good]:  # twice: what is imported late has been by then
        for result in victim.attacked(None, kind):
            print(json.dumps({"case": f"none, {kind}", **result}), flush=True)
    with open("/proc/self/statm") as file:  # more than that is no use of memory but a mistake
        pages = int(file.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), resource.RLIM_INFINITY))
    for attack in attacks(victim.good, int(every))[int(part) :: int(parts)]:
        print(json.dumps({"case": attack.name, "begun": True}), flush=True)
        for result in victim.attacked(attack, attack.kind):
            print(json.dumps({"case": attack.name, **result}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
