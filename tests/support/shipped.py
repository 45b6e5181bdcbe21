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
    "recent by age": relive.Recent(mean_age=4.0),
    "recent by share": relive.Recent(share=0.2, beta=relive.Anneal(0.2, 1.0, over=9)),
    "blend": relive.Blend((relive.Uniform(), 0.5), (relive.Prioritized(), 0.3), (relive.Recent(share=0.1), 0.2)),
    "blend, over episodes": relive.Blend((relive.Uniform(over="episodes"), 0.75), (relive.Recent(share=0.2), 0.25)),
    "blend with a queue": relive.Blend((relive.Once(), 0.25), (relive.Prioritized(weights="none"), 0.75)),
    "once": relive.Once(),
    "twice, newest first": relive.Once(uses=2, order="newest"),
}
