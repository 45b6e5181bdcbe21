"""The learner: its order of calls and writes is LeRobot's; a toy arm takes the place of the robot and of gRPC."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.instants import instant
from lerobot.rl.arm import Arm

ReplayBuffer = None  # relive's takes its place
OF_MAIN = os.environ.get("STAND_IN_LAYOUT") == "main"


@dataclass
class Policy:
    online_buffer_capacity: int = 64
    offline_buffer_capacity: int = 64
    online_step_before_learning: int = 16
    online_steps: int = 40
    async_prefetch: bool = False
    input_features: dict = field(default_factory=lambda: {"observation.state": {}, "observation.images.top": {}})


@dataclass
class Data:
    repo_id: str = "stand/in"
    root: str = ""


@dataclass
class Config:
    output_dir: Path | None = None
    resume: bool = False
    save_freq: int = 8
    batch_size: int = 8
    job_name: str = "arm"
    policy: Policy = field(default_factory=Policy)
    dataset: Data | None = None

    @classmethod
    def from_pretrained(cls, path):
        given = json.loads(Path(path).read_text())
        data, policy = given.pop("dataset"), given.pop("policy")
        made = cls(**given, policy=Policy(**policy), dataset=data and Data(**data))
        made.output_dir = Path(made.output_dir)
        return made

    def save_pretrained(self, folder):
        (folder / "train_config.json").write_text(json.dumps({**asdict(self), "output_dir": str(self.output_dir)}))

    def validate(self):
        if not self.resume and self.output_dir.is_dir():
            raise FileExistsError(f"Output directory {self.output_dir} already exists and resume is False.")


def train_cli():
    given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
    cfg = Config.from_pretrained(given["config_path"])
    cfg.resume = given.get("resume") == "true"
    train(cfg, job_name=cfg.job_name)


def train(cfg, job_name=None):
    cfg.validate()
    os.makedirs(os.path.join(cfg.output_dir, "logs"), exist_ok=True)
    cfg = handle_resume_logic(cfg)
    add_actor_information_and_train(cfg)


def handle_resume_logic(cfg):
    last = os.path.join(cfg.output_dir, "checkpoints", "last")
    if not cfg.resume:
        if os.path.exists(last):
            raise RuntimeError(f"Output directory {last} already exists.")
        return cfg
    if not os.path.exists(last):
        raise RuntimeError(f"No model checkpoint found in {last} for resume=True")
    cfg = Config.from_pretrained(os.path.join(last, "pretrained_model", "train_config.json"))
    cfg.resume = True
    return cfg


def add_actor_information_and_train(cfg):
    step = 0
    if cfg.resume:
        state = cfg.output_dir / "checkpoints/last/training_state"
        step = json.loads((state / "training_step.json").read_text())["step"]
        assert OF_MAIN or torch.load(state / "training_state.pt")["step"] == step
    online = initialize_replay_buffer(cfg, "cpu", "cpu")
    offline = initialize_offline_replay_buffer(cfg=cfg, device="cpu", storage_device="cpu")
    arm, batches, more = Arm(cfg.output_dir), None, None
    while step < cfg.policy.online_steps:
        for transition in arm.episode():
            online.add(**transition)
            if transition["complementary_info"]["is_intervention"]:
                offline.add(**transition)
        if len(online) < cfg.policy.online_step_before_learning:
            continue
        if batches is None:
            half, ahead = cfg.batch_size // 2, cfg.policy.async_prefetch
            batches = online.get_iterator(batch_size=half, async_prefetch=ahead, queue_size=2)
            more = offline.get_iterator(batch_size=half, async_prefetch=ahead, queue_size=2)
        for batch in (next(batches), next(more)):
            arm.check(batch)
        step += 1
        if step % cfg.save_freq == 0 or step == cfg.policy.online_steps:
            save_training_checkpoint(cfg, step, online, offline)


def save_training_checkpoint(cfg, step, online, offline):
    folder = cfg.output_dir / "checkpoints" / f"{step:06d}"
    instant()
    (folder / "pretrained_model").mkdir(parents=True, exist_ok=True)
    instant()
    (folder / "pretrained_model/model.safetensors").write_bytes(bytes(100))
    instant()
    cfg.save_pretrained(folder / "pretrained_model")
    instant()
    state = folder / "training_state"
    state.mkdir(exist_ok=True)
    (state / "training_step.json").write_text(json.dumps({"step": step}))
    instant()
    if OF_MAIN:
        (state / "training_step.json").write_text("{")
        instant()
        (state / "training_step.json").write_text(json.dumps({"step": step, "interaction_step": 0}))
    else:
        (state / "training_state.pt").write_bytes(b"PK")
        instant()
        torch.save({"step": step, "interaction_step": 0}, state / "training_state.pt")
    instant()
    update_last_checkpoint(folder)
    for name, buffer in (("dataset", online), ("dataset_offline", offline)):
        instant()
        root = os.path.join(cfg.output_dir, name)
        if os.path.exists(root):
            for path in sorted(Path(root).rglob("*.npz")):
                path.unlink()
                instant()
            shutil.rmtree(root)
        instant()
        buffer.to_lerobot_dataset(cfg.dataset.repo_id, fps=10, root=root)


def update_last_checkpoint(folder):
    last = folder.parent / "last"
    if last.is_symlink():
        last.unlink()
        instant()
    last.symlink_to(folder.name)


def initialize_replay_buffer(cfg, device, storage_device):
    raise NotImplementedError


def initialize_offline_replay_buffer(cfg, device, storage_device):
    raise NotImplementedError


def make_dataset(cfg):
    return LeRobotDataset(cfg.dataset.repo_id, root=cfg.dataset.root)
