"""A command's output, and a file that is damaged before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relive.cli import main


def out_of(capsys: Any, *words: object, status: int = 0) -> str:
    """Run a command; check its status, and return all that it says in one line."""
    assert main([str(word) for word in words]) == status
    told = capsys.readouterr()
    return " ".join((told.out + told.err).split())


def damage(file: Path, place: int) -> None:
    """Flip a bit of a file."""
    raw = bytearray(file.read_bytes())
    raw[place] ^= 4
    file.write_bytes(raw)
