"""What the files of `benchmarks.limits` have in common: the form of a case, and the peers it is made of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import NamedTuple

from benchmarks.peers import Peer, Spec, adapter
from benchmarks.question import Run, Scale
from benchmarks.workload import td_errors


class Fact(NamedTuple):
    """What is no time of a call, with its unit."""

    label: str
    figure: str


Runs = dict[str, Run]
"""What is measured in turns, by label."""
Case = Callable[[Scale], "Runs | list[Fact]"]

CACHED = 5_000  # rows that are in the caches, of all that is drawn or written


def made(name: str, spec: Spec, kind: str = "transitions") -> Peer:
    """Return a peer with a buffer of its own, full."""
    peer = adapter(name, kind)()
    peer.ensure(spec, fill=spec.capacity)
    return peer


def draws(peer: Peer, batch: int) -> Run:
    return lambda calls: peer.sample(batch, calls)


def cycles(peer: Peer, batch: int) -> Run:
    """Draw and write priorities back; some go before, so that the priorities are no longer all alike."""
    errors = cycle(td_errors(batch))
    peer.cycle(batch, islice(errors, 50))
    return lambda calls: peer.cycle(batch, islice(errors, calls))
