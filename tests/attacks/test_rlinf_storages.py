"""Records of RLinf's `pt` files that have other bytes than their tensors take: PyTorch maps them without a word."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from depth import some

from relive import Trajectory
from relive.errors import CorruptionError
from relive.trajectories import TrajectoryReplayBuffer, convert, verify

Records = dict[str, bytes]


def saved(path: Path) -> list[Path]:
    """A checkpoint of two trajectories, one of whose fields is a small part of a storage."""
    with TrajectoryReplayBuffer(trajectory_format="pt") as buffer:
        for k in (1.0, 2.0):
            fields = {"rewards": np.full((8, 2, 1), k, "f4"), "actions": np.full((8, 2, 3), 10 * k, "f4")}
            fields["dones"] = np.zeros((8, 2, 1), bool)
            buffer.add_trajectories([Trajectory(**fields, max_episode_length=8, model_weights_id="w")])
        buffer.save_checkpoint(path)
    return sorted(path.glob("trajectory_*.pt"))


def rewritten(file: Path, change: Callable[[Records], Records]) -> None:
    with zipfile.ZipFile(file) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in change(records).items():
            archive.writestr(name, data)
    file.write_bytes(out.getvalue())


def resized(key: str, size: int) -> Callable[[Records], Records]:
    def change(records: Records) -> Records:
        name = next(name for name in records if name.endswith(f"data/{key}"))
        return records | {name: (records[name] + bytes(4096))[:size]}

    return change


def last(records: Records) -> Records:
    """The short record comes last of all, with nothing of the file behind it."""
    changed = resized("0", 8)(records)
    name = next(name for name in changed if name.endswith("data/0"))
    return {**{key: data for key, data in changed.items() if key != name}, name: changed[name]}


def swapped(records: Records) -> Records:
    """Two storages of different sizes under each other's names: all of their bytes are there."""
    one, two = (next(name for name in records if name.endswith(f"data/{key}")) for key in "01")
    return records | {one: records[two], two: records[one]}


def moved(records: Records) -> Records:
    """What one storage lacks another one has too much."""
    return resized("1", 64 + 184)(resized("0", 8)(records))


def further(records: Records) -> Records:
    folder = next(iter(records)).partition("/")[0]
    return records | {f"{folder}/data/77": bytes(184)}


CHANGES: dict[str, Callable[[Records], Records]] = {
    "shorter": resized("0", 8), "a byte shorter": resized("1", 63), "empty": resized("0", 0),
    "longer": resized("0", 200),
    "last": last, "swapped": swapped, "moved": moved, "a storage of nothing": lambda r: further(resized("0", 8)(r)),
    "gone": lambda records: {name: data for name, data in records.items() if not name.endswith("data/1")},
}  # fmt: skip


@pytest.mark.parametrize("what", some(CHANGES, 5))
@pytest.mark.parametrize("which", [0, 1])
def test_a_record_of_another_size_is_refused(which: int, what: str, tmp_path: Path) -> None:
    """When it is loaded, or when a draw comes to it; and by `verify`."""
    file = saved(tmp_path / "saved")[which]
    rewritten(file, CHANGES[what])
    with closing(TrajectoryReplayBuffer(seed=0)) as buffer:
        if which:
            buffer.load_checkpoint(tmp_path / "saved")
        with pytest.raises(CorruptionError, match=file.name):
            buffer.sample(64) if which else buffer.load_checkpoint(tmp_path / "saved")
    with pytest.raises(CorruptionError, match=file.name):
        convert(tmp_path / "saved", tmp_path / "made")
    assert [name for name, _ in verify(tmp_path / "saved")] == [file.name]
