"""A command that Ctrl-C ends in the middle of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from depth import eventually


def interrupted(words: list[str], after: str) -> str:
    """Send Ctrl-C to `relive WORDS` after the first line that starts with `after`; check its end; return its output."""
    command, pipe = [sys.executable, "-m", "relive_lab", *words], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, bufsize=1, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(after):
                    break
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the children, too
            shown, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, error
    assert "Traceback" not in error, error
    eventually(lambda: ended(process.pid))  # a helper of Python's own outlives the command
    return shown


def ended(group: int) -> bool:
    """Return True if a process group is empty."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
