"""Where a trainer's steps are: a buffer of this process, one that actors share, or shards on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import relive
from relive.errors import ArgumentError, message
from relive.lab._config import TrainerConfig
from relive.lab._env import MakeEnv

if TYPE_CHECKING:
    from relive.lab._algorithm import Algorithm
    from relive.lab._log import Log


def made(config: TrainerConfig, schema: relive.Schema, **choices: Any) -> Any:
    """Make what the settings say.

    Args:
        config: Capacity, actors, cluster, shards.
        schema: What a step holds.
        **choices: `item`, `sampler`, `limiter`, `seed`.
    """
    lanes = config.num_envs * max(1, config.actors)
    if config.cluster is None:
        storage = relive.Shared() if config.actors else relive.Ram()
        return relive.ReplayBuffer(schema, config.buffer_capacity, num_envs=lanes, storage=storage, **choices)
    from relive.ray import Shards

    return Shards(schema, config.buffer_capacity, num_envs=lanes, shards=config.shards, **choices)


def joined(config: TrainerConfig) -> Callable[[], None]:
    """Join the cluster that the settings name, if any; return what leaves it where this process was in none before."""
    if config.cluster is not None:
        from relive.lab import _cluster

        if _cluster.join(config):
            return _cluster.leave
    return lambda: None


def crew(trainer: Algorithm[Any], log: Log, make: Callable[..., Any], make_env: MakeEnv | None) -> tuple[Any, Any]:
    """Return the trainer's actors, and what draws batches before they are needed, if anything: context managers."""
    if trainer.config.cluster is None:
        from relive.lab._actors import Crew

        return Crew(trainer, log, make, make_env), contextlib.nullcontext()
    from relive.lab._cluster import ClusterCrew

    buffer: Any = trainer.buffer
    return ClusterCrew(trainer, log, make, make_env), buffer.prefetch(trainer.config.batch_size)


def check(before: dict[str, Any], changes: dict[str, Any], at: str) -> None:
    """Refuse changes of settings by which a saved run could not go on; another cluster is none of them."""
    for name, default in (("seed", 0), ("num_envs", 1), ("actors", 0), ("samples_per_insert", None)):
        if changes.get(name, then := before.get(name, default)) != then:
            raise ArgumentError(message(f"{then}, as in the run", f"`{changes[name]}`", f"{at}({name})"))
    then = before.get("cluster")
    if (changes.get("cluster", then) is None) != (then is None):
        wanted = "none, as in the run" if then is None else "a cluster, as in the run"
        raise ArgumentError(message(wanted, f"`{changes['cluster']}`", f"{at}(cluster)"))


def loaded(config: TrainerConfig, buffer: Any, path: Path, number: int, **choices: Any) -> Any:
    """Load what `saved` saved in the place of `buffer`, which is as new; of shards the newest save.

    Args:
        config: As in `made`.
        buffer: What `made` made.
        path: Folder of the saves.
        number: What the save is called there.
        **choices: `item`, `sampler`, `limiter`.
    """
    choices["capacity"] = config.buffer_capacity
    if config.cluster is None:
        storage = relive.Shared() if config.actors else relive.Ram()
        return relive.load(path, number=number, storage=storage, **choices)
    from relive.ray import Shards

    buffer.close()
    return Shards.load(path, shards=config.shards, **choices)


def saved(buffer: Any, path: Path, keep: int, wait: bool) -> Callable[[], int]:
    """Save it in a folder, as `_checkpoint.Save` does; shards are always waited for."""
    if isinstance(buffer, relive.ReplayBuffer):
        begun = buffer.save(path, keep=keep, wait=wait)
        return lambda: begun.wait().number
    buffer.save(path)
    return lambda: 0
