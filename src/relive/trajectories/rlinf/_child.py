"""A process that reads `pt` files of strangers within limits, and says in JSON what they hold.

`python -I _child.py`. Its standard input is a line with `sys.path` and the directory, and then a file's name a line. It
answers each line by one: that it is ready, the tensors of a file, or why the file is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

_MORE_BYTES, _MORE_SECONDS, _BYTES_PER_SECOND = 256 << 20, 10, 10 << 20
_MOST_FILES = 64


def main() -> None:
    """Answer until the input ends."""
    told = json.loads(sys.stdin.readline())
    sys.path[:] = told["path"]
    from relive._disk.files import Folder, size_of
    from relive.errors import StorageError
    from relive.trajectories.rlinf._file import contents, require_torch

    require_torch(told["folder"])
    folder, before = Folder(told["folder"]), _limited()
    _say({"ready": True})
    for line in sys.stdin:
        name = json.loads(line)
        try:
            with folder.reading(name) as fd:
                _allow(before, size_of(fd))
                found = contents(fd, "pt", name)
            _say({"tensors": [[path, tensor.dtype, tensor.shape] for path, tensor in found.tensors.items()]})
        except (StorageError, MemoryError) as error:
            _say({"refused": str(error).partition(" - at ")[0] or "The process that read the file exceeded its memory"})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _limited() -> int:
    """Limit what this process may do; returns the bytes of its address space so far, 0 if they are not known."""
    with contextlib.suppress(ImportError):  # as on Windows
        import resource

        limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: _MOST_FILES}
        for limit, most in limits.items():
            resource.setrlimit(limit, (most, most))
        with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    return 0


def _allow(before: int, size: int) -> None:
    """Allow memory and seconds for a file of so many bytes."""
    with contextlib.suppress(ImportError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + _MORE_SECONDS + size // _BYTES_PER_SECOND
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        if before:
            most = before + 2 * size + _MORE_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    os.umask(0o077)
    main()
