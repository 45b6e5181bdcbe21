"""Where a run's steps are: a buffer of this process, one that actors share, or shards on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import relive
from relive.errors import ArgumentError, message
from relive_lab.agent import Agent
from relive_lab.config import TrainerConfig
from relive_lab.pace import limiter_of


def made(config: TrainerConfig, agent: Agent) -> Any:
    """Return the buffer that the settings say, empty."""
    if config.cluster is not None:
        from relive.ray import Shards

        size: dict[str, Any] = {"num_envs": config.lanes, "shards": config.shards, "seed": config.seeds(0)[0]}
        return Shards(agent.schema, config.buffer_capacity, **size, **_choices(config, agent))
    own: dict[str, Any] = {"num_envs": config.lanes, "storage": _storage(config), "seed": config.seeds(0)[0]}
    return relive.ReplayBuffer(agent.schema, config.buffer_capacity, **own, **_choices(config, agent))


def loaded(config: TrainerConfig, agent: Agent, new: Any, path: Path, number: int) -> Any:
    """Load what `saved` saved, in the place of a buffer of `made` that has been given no step.

    Args:
        config: As in `made`.
        agent: As in `made`.
        new: The buffer of `made`.
        path: Folder of the saves.
        number: What the save is called there; of shards the newest one is loaded.
    """
    choices = {**_choices(config, agent), "capacity": config.buffer_capacity}
    if config.cluster is None:
        return relive.load(path, number=number, storage=_storage(config), **choices)
    from relive.ray import Shards

    new.close()
    return Shards.load(path, shards=config.shards, **choices)


def saved(buffer: Any, path: Path, keep: int, wait: bool) -> Callable[[], int]:
    """Save it in a folder, as `saving.Save` does; shards are always waited for."""
    if isinstance(buffer, relive.ReplayBuffer):
        begun = buffer.save(path, keep=keep, wait=wait)
        return lambda: begun.wait().number
    buffer.save(path)
    return lambda: 0


def check_changes(before: Mapping[str, Any], changes: Mapping[str, Any], at: str) -> None:
    """Refuse changes of settings with which a saved run could not go on; the cluster may be another one."""
    for name, default in (("seed", 0), ("num_envs", 1), ("actors", 0), ("samples_per_insert", None)):
        if changes.get(name, then := before.get(name, default)) != then:
            raise ArgumentError(message(f"{then}, as in the run", f"`{changes[name]}`", f"{at}({name})"))
    then = before.get("cluster")
    if (changes.get("cluster", then) is None) != (then is None):
        wanted = "none, as in the run" if then is None else "a cluster, as in the run"
        raise ArgumentError(message(wanted, f"`{changes['cluster']}`", f"{at}(cluster)"))


def _storage(config: TrainerConfig) -> relive.Shared | relive.Ram:
    return relive.Shared() if config.actors else relive.Ram()


def _choices(config: TrainerConfig, agent: Agent) -> dict[str, Any]:
    return {"item": agent.item, "sampler": config.sampler(), "limiter": limiter_of(config, agent.item)}
