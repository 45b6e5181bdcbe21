"""A small process that removes a shared segment when the one that made it is gone: `python _sweep.py PATH INODE`.

It waits for the end of its input, a pipe whose other end only the creator has.
"""

import contextlib
import os
import signal
import sys

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # Ctrl-C goes to the whole group
    signal.signal(number, signal.SIG_IGN)
sys.stdin.buffer.read()
path, inode = sys.argv[1:]
with contextlib.suppress(OSError):
    if os.stat(path, follow_symlinks=False).st_ino == int(inode):
        os.unlink(path)
