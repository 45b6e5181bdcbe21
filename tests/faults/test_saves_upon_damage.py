"""Saves that build upon files of earlier ones, which have been damaged since: what is acknowledged can be loaded."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from depth import some
from saved_lives import build, live, numbers, rounds_of

import relive
from relive.checkpoints import _manifest
from relive.errors import ArgumentError, StorageError

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
KEEP, ROUNDS = 2, 4


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make saves of a buffer that has lived 2, 3 and 4 rounds; the last one uses files of the two before."""
    path, buffer = tmp_path_factory.mktemp("saved"), build()
    for serial in range(ROUNDS):
        live(buffer, serial)
        if serial:
            buffer.save(path, keep=3)
    folder = relive._disk.files.Folder(path)
    assert len(_manifest.read(folder, 3).steps) > 1
    folder.close()
    return path


def flips(path: Path, step: int) -> Iterator[tuple[str, int]]:
    """Yield bits of all files of saves, every `step`-th."""
    left = step // 2
    for name in sorted(os.listdir(path)):
        bits = 8 * (path / name).stat().st_size
        while left < bits:
            yield name, left
            left += step
        left -= bits


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def sound(path: Path) -> list[int]:
    """List the saves that can be loaded, the newest first."""
    found = []
    for number in numbers(path):
        try:
            relive.load(path, number=number)
            found.append(number)
        except StorageError:
            continue
    return found


def saved_upon(path: Path, damage: tuple[str, int | None], keep: int = KEEP) -> tuple[list[int], list[int]]:
    """Save after damage; return the sound saves before and after, and check the new one."""
    buffer = relive.load(path)
    name, bit = damage
    (path / name).unlink() if bit is None else flip(path / name, bit)
    before = sound(path)
    live(buffer, ROUNDS)
    assert buffer.save(path, keep=keep).number == ROUNDS
    assert rounds_of(relive.load(path), [ROUNDS + 1]) == ROUNDS + 1
    live(buffer, ROUNDS + 1)  # and it is built upon
    buffer.save(path, keep=keep + 1)
    assert rounds_of(relive.load(path), [ROUNDS + 2]) == ROUNDS + 2
    return before, sound(path)


@pytest.mark.parametrize(
    "step", [19_979, pytest.param(int(os.environ.get("RELIVE_BITS", 211)), marks=pytest.mark.slow)]
)
def test_any_bit_is_flipped_between_two_saves(step: int, saved: Path, folder: Path) -> None:
    """Check that the next save can be loaded, and that `keep` counts sound saves only."""
    seen = set()
    for number, damage in enumerate(flips(saved, step)):
        path = folder / str(number)
        shutil.copytree(saved, path)
        before, after = saved_upon(path, damage)
        assert after == sorted([5, 4, *before], reverse=True)[: KEEP + 1], damage
        seen.add(damage[0].partition("-")[0])
        shutil.rmtree(path)
    assert seen == {"save", "state", "steps"}


@pytest.mark.parametrize(
    ("place", "number"), some(itertools.product(["length", "header", "data", "table", "end", "gone"], [1, 2, 3]), 9)
)
def test_what_is_wrong_is_said_once(
    place: str, number: int, saved: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage header, data and table of each file of steps."""
    path, name = folder / "saves", f"steps-{number:010d}.safetensors"
    shutil.copytree(saved, path)
    bits = 8 * (path / name).stat().st_size
    begin = 8 * (8 + int.from_bytes((path / name).read_bytes()[:8], "little"))
    bit = {"length": 0, "header": 700, "data": begin + 9, "table": bits - 20, "end": bits - 1, "gone": None}[place]
    with caplog.at_level(logging.WARNING, "relive"):
        before, after = saved_upon(path, (name, bit))
    assert after[:2] == [5, 4]
    assert before == [n for n in (3, 2, 1) if n < number], "later saves use the file"
    (record,) = caplog.records
    assert "An earlier save is damaged, and all steps are written anew" in record.getMessage()
    assert name in record.getMessage()


@pytest.mark.parametrize("rows", some([1000, 6000, 8500], 2))
def test_less_than_a_megabyte_is_read_whole(rows: int, folder: Path) -> None:
    """Check that a flipped byte in any file to build upon is found, and all is written anew."""
    buffer = large(25, 20_000, 0)
    for count in (rows // 2, rows // 2, 10):
        grow(buffer, count)
        buffer.save(folder / "saves")
    for name in sorted(path.name for path in (folder / "saves").glob("steps-*")):
        for place in range(9_000, (folder / "saves" / name).stat().st_size, 1 << 16):
            path = folder / "flipped"
            shutil.copytree(folder / "saves", path)
            going_on = relive.load(path)
            flip(path / name, 8 * place)
            going_on.save(path)
            assert len(relive.load(path)) == rows + 10, (name, place)
            shutil.rmtree(path)


def test_nothing_is_said_where_nothing_is_wrong(saved: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(saved, folder / "saves")
    buffer = relive.load(folder / "saves")
    live(buffer, ROUNDS)
    for verify in (False, True):
        more = buffer.save(folder / "saves", keep=3, verify=verify)
        assert more.bytes_written < more.bytes_total
    assert not caplog.records
    assert numbers(folder / "saves") == [5, 4, 3]
    with pytest.raises(ArgumentError, match=r"ReplayBuffer\.save\(verify\)"):
        buffer.save(folder / "saves", verify="all")  # type: ignore[arg-type]


def large(width: int = 250, capacity: int = 8_000, steps: int = 4_500) -> relive.ReplayBuffer:
    """Make a buffer with a file of 70 chunks."""
    buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((width,)), action=relive.Field()), capacity, seed=0)
    if steps:
        grow(buffer, steps)
    return buffer


def grow(buffer: relive.ReplayBuffer, steps: int) -> None:
    obs = np.random.default_rng(buffer.stats().added).random((steps + 1, *buffer.schema.tree["obs"].shape), np.float32)
    flags, numbers = np.zeros(steps, bool), np.zeros(steps)
    step = {"action": numbers, "reward": numbers, "terminated": flags, "truncated": flags}
    buffer.extend(obs=obs[:-1], next_obs=obs[1:], **step)


def test_a_bit_of_a_large_file(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Check that `verify=True` finds it at once; otherwise some save does, since each reads other chunks."""
    buffer = large()
    buffer.save(folder / "a")
    buffer.save(folder / "b")
    for path, verify, most in (("b", True, 1), ("a", False, 200)):
        buffer.save(folder / path)
        for file in (folder / path).glob("steps-*"):
            flip(file, 8 * 3_000_000)
        for _ in range(most):
            grow(buffer, 1)
            buffer.save(folder / path, verify=verify, keep=most)
            if caplog.records:
                break
        assert len(caplog.records) == 1
        caplog.clear()
        assert relive.load(folder / path).stats().added == buffer.stats().added
        grow(buffer, 1)
        buffer.save(folder / path, verify=True, keep=1)
        assert not caplog.records
        assert numbers(folder / path) == sound(folder / path)


def test_verify_counts_sound_saves_only(folder: Path) -> None:
    """Check the earlier ones that `keep` keeps, too: data that no new save builds upon are also read."""
    buffer = large()
    buffer.save(folder, keep=4)  # 1
    grow(buffer, 600)
    buffer.save(folder, keep=4)  # 2 uses 1's
    flip(folder / "steps-0000000002.safetensors", 8 * 500_000)
    again = relive.load(folder, number=1)  # goes on from there, and does not use what 2 wrote
    grow(again, 5)
    again.save(folder, keep=2, verify=True)
    assert sound(folder) == [3, 1]
    grow(again, 5)
    again.save(folder, keep=2, verify=True)
    assert sound(folder) == [4, 3]
