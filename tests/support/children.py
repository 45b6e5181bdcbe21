"""Programs in processes of their own that fork from one which has imported NumPy and relive."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# A child leaves the loop and ends as any program does: its threads, atexit and the collector are Python's own affair.
SERVER = """
import gc, json, os, sys
for name in sys.argv[1:]: __import__(name)
gc.freeze()
while True:
    asked = sys.stdin.readline()
    if not asked: os._exit(0)
    child = os.fork()
    if not child: break
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
asked = json.loads(asked)
for fd, name in enumerate([os.devnull, asked["out"], asked["err"]]): os.dup2(os.open(name, os.O_RDWR), fd)
os.environ.update(asked["environment"])
os.chdir(asked["folder"])
sys.argv, sys.path[:0] = ["-c", *asked["arguments"]], asked["path"]
text = asked["text"]
for name in ["asked", "child", "fd", "name"]: del globals()[name]
exec(compile(text, "<program>", "exec"))
"""

USED = ("numpy.random", "relive._ring.kernels", "relive.checkpoints.autosave", "relive.checkpoints._saving")


@cache
def server(flags: tuple[str, ...], modules: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start the process that others fork from; it ends with this one."""
    command = [sys.executable, *flags, "-c", SERVER, *modules]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def run_program(
    text: str, *arguments: object, path: Any = (), timeout: float = 90.0, flags: Any = (), loaded: Any = (), **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as `python FLAGS -c` does, with further folders on its path and in an environment that has `more`.

    Its process forks from one that has `loaded` these modules.
    """
    made = server((*flags,), (*USED, *loaded))
    assert made.stdin is not None
    assert made.stdout is not None
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("out", "err")]
        for file in files:
            file.touch()
        asked = {"text": text, "arguments": [*map(str, arguments)], "path": [*map(str, path)], "folder": os.getcwd()}
        asked |= {"environment": more, "out": str(files[0]), "err": str(files[1])}
        made.stdin.write(json.dumps(asked).encode() + b"\n")
        child = int(made.stdout.readline())
        late = not select.select([made.stdout], [], [], timeout)[0]
        if late:
            os.kill(child, signal.SIGKILL)
        status = int(made.stdout.readline())
        said = [file.read_text() for file in files]
    if late:
        raise subprocess.TimeoutExpired(text, timeout, *said)
    return subprocess.CompletedProcess(text, status, *said)
