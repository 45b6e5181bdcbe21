"""Data sets: an archive of arrays for each episode; as LeRobot's, they cannot be read before `finalize`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch


class LeRobotDataset:
    def __init__(self, repo_id, root):
        self.repo_id, self.root = repo_id, Path(root)
        info = json.loads((self.root / "meta/info.json").read_text())
        if not info["finalized"]:
            raise ValueError("Parquet magic bytes not found in footer")
        self.features, self.fps, self.num_episodes = info["features"], info["fps"], info["episodes"]
        self._items = []
        for number in range(self.num_episodes):
            with np.load(self.root / f"data/{number}.npz") as episode:
                columns = {name: episode[name] for name in episode.files}
            for place in range(len(columns["action"])):
                item = {name: torch.from_numpy(np.array(values[place])) for name, values in columns.items()}
                for name, value in item.items():
                    shape, kind = tuple(self.features[name]["shape"]), self.features[name]["dtype"]
                    item[name] = value.float() / 255 if kind == "image" else value[0] if shape == (1,) else value
                self._items.append({**item, "episode_index": torch.tensor(number)})

    @classmethod
    def create(cls, *, repo_id, fps, features, root, use_videos):
        made = cls.__new__(cls)
        made.repo_id, made.fps, made.features, made.root = repo_id, fps, features, Path(root)
        made.num_episodes, made._frames = 0, []
        for folder in ("meta", "data"):
            (made.root / folder).mkdir(parents=True)
        made._write_info(False)
        if os.environ.get("STAND_IN_LAYOUT") == "main":
            made.writer = ImageWriter()
        else:
            made.start_image_writer, made.stop_image_writer = ImageWriter.start_image_writer, lambda: None
        return made

    def _write_info(self, finalized):
        about = {"fps": self.fps, "features": self.features, "episodes": self.num_episodes, "finalized": finalized}
        (self.root / "meta/info.json").write_text(json.dumps(about))

    def add_frame(self, frame):
        assert frame.pop("task")
        assert frame.keys() == self.features.keys()
        for name, value in frame.items():
            feature = self.features[name]
            assert tuple(value.shape) == tuple(feature["shape"]), name
            assert feature["dtype"] != "image" or value.dtype == np.uint8, "LeRobot cuts off what is behind the point"
        self._frames.append({name: np.asarray(value) for name, value in frame.items()})

    def save_episode(self):
        columns = {name: np.stack([frame[name] for frame in self._frames]) for name in self.features}
        np.savez(self.root / f"data/{self.num_episodes}.npz", **columns)
        self._frames, self.num_episodes = [], self.num_episodes + 1
        self._write_info(False)

    def finalize(self):
        self._write_info(True)

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]


class ImageWriter:
    @staticmethod
    def start_image_writer(num_processes, num_threads):
        pass

    @staticmethod
    def stop_image_writer():
        pass
