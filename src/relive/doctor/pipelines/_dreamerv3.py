"""DreamerV3's replay of sequences, here of two steps; a stand-in where its source, or `elements`, is not there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from .._pipeline import Item
from ._loops import Run, Runner, calls_of
from ._sources import imported

Step = dict[str, Any]
Pair = tuple[Any, Step, Step]  # what `update` takes, and two steps in a row
_CHUNK = 4


class SavedChunks:
    """Chunks of steps, each saved once, whatever is written to it later; the mixture of selectors has no length."""

    def __init__(self, size: int, mixed: bool, repaired: bool) -> None:
        self._size, self._mixed, self._repaired = size, mixed and not repaired, repaired
        self._steps, self._next, self._rng = dict[int, Step](), 0, np.random.default_rng(0)
        self._saved: dict[int, dict[int, Step]] = {}

    def add(self, step: Step) -> None:
        """Add a step."""
        self._steps[self._next] = step
        self._steps.pop(self._next - self._size - 1, None)
        self._next += 1

    def pairs(self) -> Iterator[Pair]:
        """Yield everything that can be drawn."""
        return ((at, step, self._steps[at + 1]) for at, step in self._steps.items() if at + 1 in self._steps)

    def sample(self, n: int) -> list[Pair]:
        """Draw pairs."""
        if self._mixed:
            raise TypeError("object of type 'Mixture' has no len()")
        known = [*self.pairs()]
        return [known[i] for i in self._rng.integers(len(known), size=n)]

    def update(self, number: int, latent: float) -> None:
        """Write to a step that is still stored."""
        if number in self._steps:
            self._steps[number] = {**self._steps[number], "latent": latent}
            if self._repaired:
                self._saved.pop(number // _CHUNK, None)

    def save(self) -> Any:
        """Save the chunks that are not saved yet, and return all that is saved."""
        for chunk in {number // _CHUNK for number in self._steps} - self._saved.keys():
            self._saved[chunk] = {at: step for at, step in self._steps.items() if at // _CHUNK == chunk}
        return {at: step for chunk in self._saved.values() for at, step in chunk.items()}

    def load(self, saved: Any) -> None:
        """Load chunks."""
        self._steps = dict(saved)


class TheirReplay:
    """The same calls of DreamerV3's own class."""

    def __init__(self, module: Any, size: int, mixed: bool) -> None:
        uniform = module.selectors.Uniform(0)
        selector = module.selectors.Mixture({"uniform": uniform}, {"uniform": 1.0}) if mixed else uniform
        choices = {"chunksize": _CHUNK, "directory": tempfile.mkdtemp(), "save_wait": True, "selector": selector}
        self._replay = module.Replay(2, size, **choices)

    def add(self, step: Step) -> None:
        """Add a step."""
        self._replay.add(step)

    def pairs(self) -> Iterator[Pair]:
        """Yield everything that can be drawn."""
        return map(self._pair, (self._replay._getseq(*item) for item in self._replay.items.values()))

    def sample(self, n: int) -> list[Pair]:
        """Draw pairs; the class waits for ever for an item where there is none."""
        len(self._replay.sampler)
        return [*map(self._pair, ({k: v[i] for k, v in self._replay.sample(n).items()} for i in range(n)))]

    @staticmethod
    def _pair(sequence: Step) -> Pair:
        one, two = ({name: column[i] for name, column in sequence.items()} for i in range(2))
        return bytes(one["stepid"]), one, two

    def update(self, stepid: bytes, latent: float) -> None:
        """Write to a step."""
        self._replay.update({"stepid": np.frombuffer(stepid, np.uint8)[None, None], "latent": np.array([[latent]])})

    def save(self) -> Any:
        """Save, and return the folder."""
        self._replay.save()
        return self._replay.directory

    def load(self, saved: Any) -> None:
        """Load a folder."""
        self._replay.load(directory=saved)


class DreamerV3(Runner):
    """DreamerV3's replay, or a stand-in, with uniform draws; latents are written back."""

    modes, lanes, mixed = (AutoresetMode.DISABLED,), 1, False

    def __init__(self, repaired: bool = False) -> None:
        super().__init__()
        self._repaired, self._theirs = repaired, imported("dreamerv3", "embodied/core", "replay")

    def _made(self, run: Run) -> Any:
        self._run = run
        if self._theirs:
            return TheirReplay(self._theirs, run.size, self.mixed)
        return SavedChunks(run.size, self.mixed, self._repaired)

    def _fill(self, run: Run) -> None:
        names, before = ("obs", "reward", "is_first", "is_terminal", "latent"), (0.0, True, False)
        for call in calls_of(run):
            reward, first, terminal = before
            step = call.obs[0].item(), 0.0 if first or call.reset else reward, first or call.reset, terminal, 0.0
            self._buffer.add(dict(zip(names, step, strict=True)))
            before = call.reward[0].item(), False, call.terminated[0].item()
            if call.terminated[0] or call.truncated[0]:  # the last observation is a step of its own
                step = call.next_obs[0].item(), before[0], False, before[2], 0.0
                self._buffer.add(dict(zip(names, step, strict=True)))
                before = 0.0, True, False

    def items(self) -> list[Item]:
        """Return every item that can be drawn."""
        return [self._item(pair) for pair in self._buffer.pairs() if not pair[2]["is_first"]]

    def values(self) -> list[float]:
        """Return the latents of `items`."""
        return [float(pair[1]["latent"]) for pair in self._buffer.pairs() if not pair[2]["is_first"]]

    def sample(self, n: int) -> list[Item]:
        """Draw items; what runs into the next episode is left out, as `is_first` tells a learner."""
        return [self._item(pair) for pair in self._buffer.sample(2 * n) if not pair[2]["is_first"]]

    def _item(self, pair: Pair) -> Item:
        handle, one, two = pair
        bootstrap = 0.0 if two["is_terminal"] else self._gamma
        return Item(float(one["obs"]), float(two["reward"]), bootstrap, float(two["obs"]), handle)

    def write(self, handles: list[Any], values: list[float]) -> None:
        """Write latents back."""
        for handle, value in zip(handles, values, strict=True):
            self._buffer.update(handle, value)

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
