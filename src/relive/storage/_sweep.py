"""A small process that removes shared segments when the process that made them is gone.

It reads lines, `+ INODE PATH` and `- INODE PATH`, from a socket whose other end only that process has. At the end it
removes what was added and not taken back. It is no child of that process, which may wait for all of its children.
"""

import contextlib
import os
import signal
import sys


def sweep() -> None:
    """Read to the end, then remove."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # Ctrl-C goes to the whole group
        signal.signal(number, signal.SIG_IGN)
    kept: set[str] = set()
    for line in sys.stdin:
        sign, _, file = line.rstrip("\n").partition(" ")
        (kept.add if sign == "+" else kept.discard)(file)
    for file in kept:
        inode, _, path = file.partition(" ")
        with contextlib.suppress(OSError):
            if os.stat(path, follow_symlinks=False).st_ino == int(inode):
                os.unlink(path)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    sweep()
