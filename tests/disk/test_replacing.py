"""Files that take the place of others."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from relive._disk.replacing import replacing


def test_a_file_is_synced_before_it_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def call(*given: Any, name: str = name, real: Any = real) -> None:
            calls.append(name)
            real(*given)

        monkeypatch.setattr(os, name, call)
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert calls[:2] == ["fsync", "replace"]
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(str(path)) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
