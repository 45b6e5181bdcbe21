"""JSON files with a checksum: any change of a byte is found; files of older versions may have none."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from relive._disk import json_files
from relive._disk.files import Folder
from relive.errors import CorruptionError

FACTS = {"format": "x.1", "numbers": [1, 2.5], "nested": {"checksum": 7}}


def read(path: Path, *, plain: bool = False) -> object:
    with closing(Folder(path)) as folder:
        return json_files.read(folder, "facts.json", 1000, plain=plain)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_bytes(json_files.dumped(FACTS))
    assert read(tmp_path) == read(tmp_path, plain=True) == FACTS
    assert json.loads(json_files.dumped(FACTS)).keys() == {*FACTS, "checksum"}


@pytest.mark.parametrize("plain", [False, True])
def test_every_change_of_a_byte_is_found(plain: bool, tmp_path: Path) -> None:
    good = json_files.dumped(FACTS)
    for at in range(len(good)):
        (tmp_path / "facts.json").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CorruptionError, match=r"facts\.json"):
            read(tmp_path, plain=plain)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1, "a": 1}', "{}" + " " * 1000, "\ufeff{}"])
def test_no_facts(text: str, tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(text)
    for plain in (False, True):
        with pytest.raises(CorruptionError):
            read(tmp_path, plain=plain)


def test_a_file_without_a_checksum_is_read_where_older_versions_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    assert read(tmp_path, plain=True) == FACTS
    with pytest.raises(CorruptionError, match="does not match its checksum"):
        read(tmp_path)
