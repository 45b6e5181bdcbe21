"""DreamerV3's replay of sequences, here of two steps; a stand-in where its source, or `elements`, is not there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._latents import Latents
from ._loops import Run
from ._sources import imported
from ._stand_ins import Pair, SavedChunks, State


class TheirReplay:
    """The calls of the stand-in, of DreamerV3's own class."""

    def __init__(self, module: Any, size: int, mixed: bool) -> None:
        uniform = module.selectors.Uniform(0)
        selector = module.selectors.Mixture({"uniform": uniform}, {"uniform": 1.0}) if mixed else uniform
        choices = {"chunksize": 4, "directory": tempfile.mkdtemp(), "save_wait": True, "selector": selector}
        self._replay = module.Replay(2, size, **choices)

    def add(self, state: State) -> None:
        """Add a state."""
        self._replay.add(state)

    def pairs(self) -> Iterator[Pair]:
        """Yield everything that can be drawn."""
        return map(self._pair, (self._replay._getseq(*item) for item in self._replay.items.values()))

    def sample(self, n: int) -> list[Pair]:
        """Draw pairs; the class waits for ever for an item where there is none."""
        len(self._replay.sampler)
        return [*map(self._pair, ({k: v[i] for k, v in self._replay.sample(n).items()} for i in range(n)))]

    @staticmethod
    def _pair(sequence: State) -> Pair:
        one, two = ({name: column[i] for name, column in sequence.items()} for i in range(2))
        return bytes(one["stepid"]), one, two

    def update(self, stepid: bytes, latent: float) -> None:
        """Write to a state."""
        self._replay.update({"stepid": np.frombuffer(stepid, np.uint8)[None, None], "latent": np.array([[latent]])})

    def save(self) -> Any:
        """Save, and return the folder."""
        self._replay.save()
        return self._replay.directory

    def load(self, saved: Any) -> None:
        """Load a folder."""
        self._replay.load(directory=saved)


class DreamerV3(Latents):
    """DreamerV3's replay, or a stand-in, with uniform draws; latents are written back."""

    mixed = False

    def _made(self, run: Run) -> Any:
        self._run, theirs = run, imported("dreamerv3", "embodied/core/replay")
        if theirs:
            return TheirReplay(theirs, run.size, self.mixed)
        return SavedChunks(run.size, self.mixed, self._repaired)

    def save(self) -> Any:
        """Save the buffer."""
        return self._run, self._buffer.save()

    def load(self, saved: Any) -> None:
        """Load what was saved, into a new buffer."""
        run, kept = saved
        self._gamma, self._buffer = run.gamma, self._made(run)
        self._buffer.load(kept)


class DreamerV3Mixture(DreamerV3):
    """The same with the mixture of selectors of the paper."""

    mixed = True
