"""`relive-lab train`: one run with a progress bar, saves, a curve and a table."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.progress import Progress as Bars
from rich.table import Table

from relive.cli.terminal import INTERRUPTED, console, interruptible, progress, say, say_files
from relive.errors import ReliveWarning
from relive_lab.config import TrainerConfig
from relive_lab.results import Progress, TrainResult
from relive_lab.studies.conduct import new_figure

Command = Callable[..., int]
HELP = """{summary}

Example: relive-lab train {example}

Args:
    run: Settings of the run.
    saving: Where the run is saved, and how often.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saving:
    """The directory and the frequency of saves."""

    out: Path | None = None
    """Folder for the run (learner.safetensors and the replay buffer), curve.png and result.json; by default a new one
    in runs/, named after the run, or that of --resume."""
    save_every: int | str | None = None
    """Environment steps between two saves, or a time such as 1s or 5min, at most 1 % of which is spent on them; the run
    is also saved at its end and on Ctrl-C."""
    resume: Path | None = None
    """Folder of a run to go on with, as if it had not ended; options that are given replace its settings."""


def _command(
    kind: type[TrainerConfig],
    trainer: Any,
    about: Callable[[Sequence[str]], Command],
    example: str,
    start: TrainerConfig | None = None,
) -> Command:
    """Return the command that trains by settings of one kind; those that are not given are those of `start`."""
    # Checks are left to `kind`: raised while options are parsed, its refusals would not read as written.
    unchecked = {"__doc__": "Settings of the run.", "__post_init__": lambda self: None}
    suppressed: Any = tyro.conf.Suppress
    hidden = [("save_every", suppressed[int | str], 0)]  # it is with the others on saving
    options = dataclasses.make_dataclass(
        "Options", hidden, bases=(kind,), namespace=unchecked, frozen=True, kw_only=True
    )
    name, default = example.split()[0], options()
    offered = default if start is None else options(**_changes(start, default))

    def command(run: Any = offered, saving: Any = Saving()) -> int:
        every = {} if saving.save_every is None else {"save_every": saving.save_every}
        return _train(name, kind, trainer, _changes(run, default) | every, saving)

    command.__annotations__["run"] = tyro.conf.OmitArgPrefixes[options]  # type: ignore[misc, valid-type]
    command.__annotations__["saving"] = tyro.conf.OmitArgPrefixes[Saving]
    command.__doc__ = HELP.format(summary=inspect.getdoc(about), example=example)
    return command


def sac(arguments: Sequence[str]) -> Command:
    """Train soft actor-critic on any environment with bounded continuous actions."""
    from relive_lab.sac import SACConfig, SACTrainer

    example = "sac --env-id Pendulum-v1 --use-per --hidden-sizes 64 64 --learning-rate 1e-3"
    return _command(SACConfig, SACTrainer, sac, example)


def dqn(arguments: Sequence[str]) -> Command:
    """Train deep Q-learning on any environment with discrete actions.

    An id that begins with ALE/ is an Atari game: it gets the usual wrappers and the defaults of DQNConfig.atari.
    """
    from relive_lab.dqn import DQNConfig, DQNTrainer

    words = [word.removeprefix("--env-id=") for word in arguments]
    games = [word for word in words if word.startswith("ALE/")]
    resumed = any(word.startswith("--resume") for word in words)  # with the settings of its file
    start = DQNConfig.atari(games[0]) if games and not resumed else None
    return _command(DQNConfig, DQNTrainer, dqn, "dqn --env-id CartPole-v1 --use-per --dueling", start)


def r2d2(arguments: Sequence[str]) -> Command:
    """Train recurrent Q-learning (R2D2) on any environment with discrete actions, for tasks that need memory."""
    from relive_lab.r2d2 import R2D2Config, R2D2Trainer

    return _command(R2D2Config, R2D2Trainer, r2d2, "r2d2 --env-id relive/TMaze-v0 --use-per")


def _train(name: str, kind: type[TrainerConfig], maker: Any, changes: dict[str, Any], saving: Saving) -> int:
    screen, out, resume = console(), saving.out, saving.resume
    with interruptible() as stop:
        if resume is None:
            config = kind(**changes)
            trainer = maker(config)
            out = _folder(name, config) if out is None else out
        else:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", ReliveWarning)
                trainer = maker.load(resume, **changes)
            for warning in said:
                say(screen, f"{warning.message}")
            out = resume if out is None else out
        with progress(screen, "training", note=True, transient=False) as bars:
            result = trainer.train(_reporter(bars, trainer.config.total_steps, stop.is_set), out=out)
            paths = _write(name, trainer.config, result, out)  # before anything is printed, which may fail
    trainer.close()
    screen.print(_table(name, trainer.config, result))
    say_files(screen, paths)
    if result.steps < trainer.config.total_steps:
        say(screen, f"Stopped. Go on with: relive-lab train {name} --resume {out}")
        return INTERRUPTED
    return 0


def _changes(options: TrainerConfig, default: TrainerConfig) -> dict[str, Any]:
    names = (field.name for field in dataclasses.fields(default))
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(default, name)}


def _folder(name: str, config: TrainerConfig) -> Path:
    """Return a folder that is not there yet, named after the run."""
    env = config.env_id.replace("/", "-").replace(":", "-")
    first = Path("runs") / f"{name}-{env}-{_replay(config)}-seed{config.seed}"
    others = (first.with_name(f"{first.name}-{k}") for k in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def _replay(config: TrainerConfig) -> str:
    if config.recent_share is not None:
        return "blend" if config.use_per else "recent"
    if not config.use_per:
        return "uniform"
    return "precision" if getattr(config, "priority", "") == "precision" else "prioritized"


def _reporter(bars: Bars, total: int, stopped: Callable[[], bool]) -> Callable[[Progress], bool]:
    task = bars.add_task("", total=total, note="")

    def report(now: Progress) -> bool:
        # The return of evaluations; of training episodes until there is one.
        name = "eval" if math.isfinite(now.eval_return) else "train"
        value = now.eval_return if name == "eval" else now.train_return
        shown = f", {name} return {value:.4g}" if math.isfinite(value) else ""
        speed = bars.tasks[task].speed
        fps = f"{speed:.0f} steps/s, " if speed else ""
        bars.update(task, completed=min(now.step, total), note=f"{fps}{now.resident / 1e6:.0f} MB{shown}")
        return not stopped()

    return report


def _table(name: str, config: TrainerConfig, result: TrainResult) -> Table:
    replay = _replay(config)
    replay += f" (alpha {config.per_alpha:g})" if replay == "prioritized" else ""
    table = Table(title=f"{name.upper()} on {config.env_id}", title_justify="left", show_header=False)
    rows = {"replay": f"{replay}, {config.n_step}-step", "environment steps": f"{result.steps:,}"}
    rows |= {"updates": f"{result.updates:,}", "episodes": f"{len(result.episode_returns):,}"}
    rows["time"] = f"{result.seconds:.1f} s, {result.steps / max(result.seconds, 1e-9):.0f} steps/s"
    if len(result.episode_returns):
        rows["training return, last 10 episodes"] = f"{result.episode_returns[-10:].mean():.4g}"
    if len(result.eval_returns):
        last, means = result.eval_returns[-1], result.eval_returns.mean(axis=1)
        best = int(means.argmax())
        rows["evaluation return, last"] = f"{means[-1]:.4g} (episodes {last.min():.4g} to {last.max():.4g})"
        rows["evaluation return, best"] = f"{means[best]:.4g} at step {result.eval_steps[best]:,}"
    for row in rows.items():
        table.add_row(*row)
    return table


def _write(name: str, config: TrainerConfig, result: TrainResult, folder: Path) -> list[Path]:
    learner, picture, data = (folder / name for name in ("learner.safetensors", "curve.png", "result.json"))
    content = {"config": dataclasses.asdict(config), **dataclasses.asdict(result)}
    data.write_text(json.dumps(content, indent=2, default=np.ndarray.tolist) + "\n", encoding="utf-8")
    figure, axes = new_figure()
    if len(result.episode_returns):
        axes.plot(result.episode_steps, result.episode_returns, ".", markersize=3, alpha=0.5, label="training episodes")
    if len(result.eval_returns):
        axes.plot(result.eval_steps, result.eval_returns.mean(axis=1), "-o", markersize=3, label="evaluation, mean")
    axes.set(xlabel="environment steps", ylabel="return", title=f"{name.upper()} on {config.env_id}")
    if axes.has_data():
        axes.legend(frameon=False)
    figure.savefig(picture, dpi=120)
    return [learner, picture, data]
