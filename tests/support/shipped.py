"""Every sampler that relive ships, as each may be used."""

from __future__ import annotations

import relive

SAMPLERS = {
    "uniform": relive.Uniform(),
    "uniform, no repeats": relive.Uniform(replacement=False),
    "uniform over episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(),
    "prioritized, independent": relive.Prioritized(stratified=False, weights="buffer"),
    "prioritized, no repeats": relive.Prioritized(replacement=False, weights="none"),
    "prioritized, annealed": relive.Prioritized(beta=relive.Anneal(0.0, 1.0, over=5)),
    "prioritized, new as stored": relive.Prioritized(newest="stored"),
}
