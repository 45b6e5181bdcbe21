"""`verify` and `inspect` of RLinf's directories: a process with limits reads the files, and may be ended by one."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest
import torch
from rlinf_files import directory, fields, file

from relive import cli
from relive.errors import ArgumentError, ReliveWarning
from relive.trajectories import inspect, verify
from relive.trajectories.rlinf import _child

DEEDS = {
    "pass": "",
    "os.kill(os.getpid(), signal.SIGSEGV)": "ended by SIGSEGV",
    "while True: pass": "ended by SIGXCPU",
    "bytearray(1 << 34)": "exceeded its memory",
    "os.write(os.open(made, os.O_WRONLY | os.O_CREAT), b'x')": "File too large",
    "[os.dup(0) for _ in range(99)]": "Too many open files",
    "sys.stdout.write('x' * (9 << 20))": "ended by",
    "print('nothing'); sys.exit()": "ended by status 0",
    "_child._say({'tensors': [[['rewards'], 'object', [4, 2, 1]]]}); sys.exit()": "gave no answer",
    "_child._say({'tensors': [[['rewards'], 'float32', [4, 2.0, 1]]]}); sys.exit()": "gave no answer",
    "_child._say({'tensors': [[['rewards'], 'float32', [5, 2, 1]]]}); sys.exit()": "of the index",
}
CHILD = """
import os, signal, sys, types
sys.path[:0] = {paths!r}
made = {made!r}
sys.modules["torch"] = types.SimpleNamespace(__version__="2.6")
import numpy as np
from relive.trajectories.rlinf import _child, _file

def contents(fd, kind, name):
    exec({deeds!r}[int(name.split("_")[1])], globals())
    return _file.Contents({{("rewards",): _file.Flat("float32", (4, 2, 1), np.zeros(32, np.uint8))}}, {{}})

_file.contents, _child._MORE_SECONDS = contents, 1
_child.main()
"""


def test_a_file_that_ends_the_process_is_refused_and_the_others_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if PyTorch did for a file whatever it should not; every second file is sound."""
    deeds = [deed for one in DEEDS for deed in ("pass", one)]
    path = directory(folder / "a", [fields()] * len(deeds))
    paths = [each for each in sys.path if os.path.isabs(each)]
    (folder / "child.py").write_text(CHILD.format(paths=paths, deeds=deeds, made=str(folder / "made")))
    monkeypatch.setattr(_child, "__file__", str(folder / "child.py"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = dict(verify(path))
    assert found.keys() == {file(2 * number + 1) for number, text in enumerate(DEEDS.values()) if text}
    for number, text in enumerate(DEEDS.values()):
        assert text in found.get(file(2 * number + 1), "")
    assert (folder / "made").stat().st_size == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("kind", ["pt", "pkl"])
def test_rlinfs_directories_are_verified_and_inspected(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory(folder / "a", [fields(number) for number in range(3)], kind)
    if kind == "pkl":
        for call_ in (verify, inspect):
            with pytest.raises(ArgumentError, match="relive convert --allow-pickle"):
                call_(path)
        assert cli.main(["verify", str(path)]) != 0
        assert "relive convert --allow-pickle" in " ".join(capsys.readouterr().err.split())
        return
    data = bytearray((path / file(1)).read_bytes())
    data[data.index(fields(1)["rewards"].numpy().tobytes())] ^= 1
    (path / file(1)).write_bytes(data)
    torch.save({**fields(), "rewards": torch.zeros(4, 2, 3)}, path / file(2))
    steps = []
    bad = verify(path, lambda *done: steps.append(done))
    assert [name for name, _ in bad] == [file(1), file(2)]
    assert "Bad CRC-32" in bad[0][1]
    assert "`float32` of shape `(T, B, 3)`" in bad[1][1]
    assert steps == [(1, 3), (2, 3), (3, 3)]
    (path / file(2)).unlink()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # as on Windows
    with pytest.warns(ReliveWarning, match="without limits on memory and time"):
        found = inspect(path)
    assert (found.trajectories, found.samples, found.unknown, found.missing) == (3, 24, (), (file(2),))
    assert found.fields["curr_obs.states"] == ("float32", "(T, B, 3)")
