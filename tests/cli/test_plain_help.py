"""`relive --help` on an install without Rich and tyro, and without the lab."""

from __future__ import annotations

import importlib.metadata
import re

import pytest

import relive.cli.bench


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_needs_no_package(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(relive.cli, "find_spec", lambda name: None)
    assert relive.cli.main(arguments) == 0
    page = capsys.readouterr().out
    for name in ("doctor", "inspect", "top", "shm", "pip install 'relive[cli]'"):
        assert name in page
    assert "train" not in page


def nowhere() -> None:
    raise relive.ArgumentError(relive.errors.message("a checkout", "none", "relive bench"))


def test_commands_that_cannot_run_are_not_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tyro")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **given: ())
    monkeypatch.setattr(relive.cli.bench, "checkout", nowhere)
    with pytest.raises(SystemExit):
        relive.cli.main(["--help"])
    page = capsys.readouterr().out
    assert "inspect" in page
    listed = re.search(r"\{([\w,]+)\}", page)[1].split(",")
    assert not {"train", "compare", "bench"} & set(listed)
