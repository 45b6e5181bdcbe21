"""`verify` says of hostile saves, whose checksums are all right, what `load` refuses, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import opened_saves
import pytest
from depth import some
from make_saved_attacks import headers, manifests, numbers

import relive
from relive.checkpoints import inspection
from relive.errors import ArgumentError, StorageError


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_verify_says_what_load_refuses(tmp_path: Path) -> None:
    good, case = tmp_path / "good", tmp_path / "case"
    opened_saves.make(good)
    assert inspection.verify(good) == []
    outcomes = set()
    for lie in some([*manifests(good), *numbers(good), *headers()], 150):
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(good, case)
        lie.do(case)
        try:
            relive.load(case)
        except ArgumentError:  # it asks for a choice, which says nothing of the files
            continue
        except StorageError:
            refused = True
        else:
            refused = False
        assert bool(inspection.verify(case)) == refused, lie.name
        outcomes.add(refused)
    assert outcomes == {True, False}
