"""Actors: they step environments with a learner's newest weights, and write to its buffer, while it learns (Ape-X).

One `Crew` asks them for steps and takes in what they did; a `Backend` is where they run, as processes of this machine
or on a Ray cluster. Source: Horgan et al. 2018, arXiv:1803.00933.
"""

from __future__ import annotations

from relive_lab.config import TrainerConfig
from relive_lab.crew.actor import Job as Job
from relive_lab.crew.backend import Backend as Backend
from relive_lab.crew.crew import Crew as Crew


def backend_of(config: TrainerConfig) -> Backend | None:
    """Return where the actors of a run are, if it has any; a cluster is joined here, before there are shards."""
    if not config.actors:
        return None
    if config.cluster is None:
        from relive_lab.crew.processes import Processes

        return Processes()
    from relive_lab.crew.cluster import Cluster

    return Cluster(config)
