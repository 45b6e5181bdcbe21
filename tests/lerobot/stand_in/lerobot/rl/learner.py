"""The learner, as far as its buffers notice; a toy arm takes the place of the robot and of gRPC."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.rl.arm import Arm


def train_cli():
    (path,) = (argument.removeprefix("--config_path=") for argument in sys.argv[1:])
    cfg = json.loads(Path(path).read_text(), object_hook=lambda given: SimpleNamespace(**given))
    online = initialize_replay_buffer(cfg, "cpu", "cpu")
    offline = initialize_offline_replay_buffer(cfg=cfg, device="cpu", storage_device="cpu")
    arm, batches = Arm(cfg.output_dir), []
    for _ in range(cfg.policy.online_steps):
        for transition in arm.episode():
            online.add(**transition)
            if transition["complementary_info"]["is_intervention"]:
                offline.add(**transition)
        batches = batches or [each.get_iterator(batch_size=4, async_prefetch=False) for each in (online, offline)]
        for batch in map(next, batches):
            arm.check(batch)


def initialize_replay_buffer(cfg, device, storage_device):
    raise NotImplementedError


def initialize_offline_replay_buffer(cfg, device, storage_device):
    raise NotImplementedError


def make_dataset(cfg):
    return LeRobotDataset(cfg.dataset.repo_id, root=cfg.dataset.root)
