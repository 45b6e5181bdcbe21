"""Videos of LeRobot's data sets: each frame is what PyAV decodes, at the time that its step says."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("pyarrow")
av = needs("av")
import pyarrow
from pyarrow import parquet

from relive.errors import SchemaError, StorageError
from relive.trajectories import Trajectory, convert, from_lerobot, to_lerobot

CODECS = {"libx264": {"crf": "20"}, "libsvtav1": {"preset": "12", "crf": "30"}, "libvpx-vp9": {"deadline": "realtime"}}
FPS, TOP, WRIST = 10, "observation.images.top", "observation.images.wrist"


def film(path: Path, frames: Any, codec: str, late: float = 0.0) -> None:
    """Write a video of these frames; `late`: seconds by which those of the second half come too late."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=FPS, options=CODECS[codec])
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, 1000)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.time_base = Fraction(1, 1000)
            frame.pts = round(number * 1000 / FPS + (late * 1000 if number >= len(frames) // 2 else 0))
            file.mux(stream.encode(frame))
        file.mux(stream.encode())


def decoded(path: Path) -> list[Any]:
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]


def frames_of(count: int, size: int, seed: int = 0) -> Any:
    """Make moving noise, which codecs change."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (size + count, size, 3)).astype(np.uint8)
    return np.stack([noise[number : number + size] for number in range(count)])


def filmed(folder: Path, lengths: list[list[int]], codec: str = "libx264", size: int = 32, **film_: Any) -> None:
    """Make a data set with two cameras: for each file the lengths of its episodes."""
    flat = [length for file in lengths for length in file]
    episodes = [Trajectory(actions=np.full((length, 1, 2), n, np.float32), task="t") for n, length in enumerate(flat)]
    to_lerobot(episodes, folder, fps=FPS)
    info = json.loads((folder / "meta/info.json").read_text())
    (path,) = folder.glob("meta/episodes/*/*.parquet")
    rows = parquet.read_table(path).to_pylist()
    for seed, name in enumerate((TOP, WRIST)):
        info["features"][name] = {"dtype": "video", "shape": [size, size, 3], "names": None, "info": {}}
        number = 0
        for file, parts in enumerate(lengths):
            film(
                folder / f"videos/{name}/chunk-000/file-{file:03d}.mp4",
                frames_of(sum(parts), size, seed),
                codec,
                **film_,
            )
            begin = 0
            for length in parts:
                rows[number] |= {
                    f"videos/{name}/chunk_index": 0,
                    f"videos/{name}/file_index": file,
                    f"videos/{name}/from_timestamp": begin / FPS,
                    f"videos/{name}/to_timestamp": (begin + length) / FPS,
                }
                begin, number = begin + length, number + 1
    (folder / "meta/info.json").write_text(json.dumps(info))
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("codec", CODECS)
def test_every_frame_is_what_pyav_decodes(codec: str, tmp_path: Path) -> None:
    lengths = [[5, 1, 7], [4, 6]]
    filmed(tmp_path, lengths, codec)
    found = list(from_lerobot(tmp_path, videos=True))
    for name in (TOP, WRIST):
        wanted = []
        for file, parts in enumerate(lengths):
            frames = decoded(tmp_path / f"videos/{name}/chunk-000/file-{file:03d}.mp4")
            wanted += np.split(np.stack(frames), np.cumsum(parts)[:-1])
        for episode, frames in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(episode.curr_obs[name.removeprefix("observation.")][:, 0], frames)
    convert(tmp_path, tmp_path / "images", "lerobot")  # which writes images
    for episode, again in zip(found, from_lerobot(tmp_path / "images"), strict=True):
        for path, array in episode.arrays.items():
            np.testing.assert_array_equal(again.arrays[path], array)


def test_a_buffer_of_a_directory(tmp_path: Path) -> None:
    """Read steps of demonstrations without LeRobot; images come out as the video has them."""
    torch = needs("torch")
    from relive.lerobot import ReplayBuffer

    filmed(tmp_path, [[5, 4]])
    with pytest.raises(SchemaError, match=r"next\.reward"):
        ReplayBuffer.from_lerobot_dataset(tmp_path, "cpu", [TOP])
    info = json.loads((tmp_path / "meta/info.json").read_text())
    info["features"]["next.reward"] = info["features"]["complementary_info.n"] = info["features"]["timestamp"]
    (path,) = tmp_path.glob("data/*/*.parquet")
    table = parquet.read_table(path)
    for name in ("next.reward", "complementary_info.n"):
        table = table.append_column(name, table["timestamp"])
    parquet.write_table(table, path)
    (tmp_path / "meta/info.json").write_text(json.dumps(info))
    buffer = ReplayBuffer.from_lerobot_dataset(str(tmp_path), "cpu", [TOP], use_drq=False)
    assert buffer.relive is not None
    assert buffer.relive.schema.columns[0].field.dtype == np.uint8
    frames = torch.from_numpy(np.stack(decoded(tmp_path / f"videos/{TOP}/chunk-000/file-000.mp4")))
    frames = frames.permute(0, 3, 1, 2).float() / 255
    assert len(buffer) == 9
    assert [place for place, done in enumerate(buffer.dones) if done] == [4, 8]
    for place in range(9):
        assert torch.equal(buffer.states[TOP][place], frames[place])
        assert torch.equal(buffer.next_states[TOP][place], frames[place if place in (4, 8) else place + 1])
    assert sorted(buffer.sample(9)["complementary_info"]["n"].unique().tolist())[-1] <= 0.4 + 1e-6


def test_videos_that_are_refused(tmp_path: Path) -> None:
    filmed(tmp_path / "late", [[4, 4]], late=0.01)
    filmed(tmp_path / "short", [[4, 4]])
    for name in (TOP, WRIST):
        film(tmp_path / f"short/videos/{name}/chunk-000/file-000.mp4", frames_of(6, 32), "libx264")
    filmed(tmp_path / "large", [[4, 4]])
    film(tmp_path / f"large/videos/{TOP}/chunk-000/file-000.mp4", frames_of(8, 64), "libx264")
    filmed(tmp_path / "list", [[4, 4]])
    listed = tmp_path / f"list/videos/{TOP}/chunk-000/file-000.mp4"
    listed.rename(listed.with_name("other.mp4"))
    listed.write_text("ffconcat version 1.0\nfile other.mp4\n")
    for folder, text in [
        ("late", "no frame at"),
        ("short", "ends before"),
        ("large", "frames of"),
        ("list", "Invalid LeRobot data set"),
    ]:
        with pytest.raises(StorageError, match=text):
            list(from_lerobot(tmp_path / folder, videos=True))
    with pytest.raises(SchemaError, match="`videos=True` decodes them"):
        from_lerobot(tmp_path / "late")
    path = tmp_path / "short/meta/info.json"
    for change, text in [
        ({"info": {"video.is_depth_map": True}}, "one of depths"),
        ({"info": {"is_depth_map": True}}, "one of depths"),
        ({"shape": [32, 32, 1]}, "three colours"),
    ]:
        info = json.loads(path.read_text())
        kept = info["features"][TOP]
        info["features"][TOP] = {**kept, **change}
        path.write_text(json.dumps(info))
        with pytest.raises(SchemaError, match=text):
            from_lerobot(tmp_path / "short", videos=True)
        path.write_text(json.dumps({**info, "features": {**info["features"], TOP: kept}}))
    info = json.loads(path.read_text())
    info["features"]["../../other"] = info["features"].pop(TOP)
    path.write_text(json.dumps(info))
    with pytest.raises(SchemaError, match="a name that is no path"):
        from_lerobot(tmp_path / "short", videos=True)


@pytest.mark.bench
def test_reading_costs_little_more_than_decoding(tmp_path: Path) -> None:
    """Time 1,000 frames of 128 x 128, in ten episodes, and the decoding alone; in turns."""
    for codec in CODECS:
        folder = tmp_path / codec
        filmed(folder, [[100] * 10], codec, size=128)
        pairs = []
        for _ in range(5):
            begun = time.perf_counter()
            for name in (TOP, WRIST):
                decoded(folder / f"videos/{name}/chunk-000/file-000.mp4")
            middle = time.perf_counter()
            for _ in from_lerobot(folder, videos=True):
                pass
            pairs.append((time.perf_counter() - middle) / (middle - begun))
        print(codec, sorted(pairs))
        assert sorted(pairs)[2] <= 1.5
