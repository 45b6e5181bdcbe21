"""The generators that draws use: NumPy's, or PyTorch's for RLinf's checkpoints."""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np

from .._extras import needs
from .._generators import generator_of, state_of
from .._types import Int64
from ..errors import StorageError, event


class Draws(Protocol):
    """Uniform integers, and a state that can be saved as text.

    Attributes:
        seed: The seed to write into RLinf's checkpoints: this generator's own, if it has at most 32 bits.
    """

    seed: int

    def integers(self, below: int, n: int) -> Int64:
        """`n` integers in `[0, below)`."""
        ...

    def state(self) -> str:
        """The state as JSON, with the seed and whether anything has been `drawn`."""
        ...


class NumpyDraws:
    """`Generator.integers`, one call a draw."""

    kind = "numpy"

    def __init__(self, rng: np.random.Generator, seed: int | None = None, *, drawn: bool = False) -> None:
        self.rng = rng
        self.seed = _seed_of(rng) if seed is None else seed
        self._drawn = drawn

    def integers(self, below: int, n: int) -> Int64:
        """`n` integers in `[0, below)`."""
        self._drawn = True
        return self.rng.integers(0, below, n)

    def state(self) -> str:
        """The bit generator's state, as JSON."""
        facts = {"kind": self.kind, "seed": self.seed, "drawn": self._drawn}
        return json.dumps({**facts, "state": state_of(self.rng)})


class TorchDraws:
    """`torch.randint` with its own generator, as in RLinf.

    Raises:
        MissingExtra: PyTorch is not installed.
    """

    kind = "torch"

    def __init__(self, seed: int) -> None:
        with needs("torch", "TrajectoryReplayBuffer.load_checkpoint"):
            import torch
        self.seed = seed
        self._drawn, self._torch = False, torch
        self._generator = torch.Generator().manual_seed(seed)

    def integers(self, below: int, n: int) -> Int64:
        """`n` integers in `[0, below)`."""
        self._drawn = True
        drawn: Int64 = self._torch.randint(0, below, (n,), generator=self._generator).numpy()
        return drawn

    def state(self) -> str:
        """The generator's state, as JSON."""
        state = bytes(self._generator.get_state().tolist()).hex()
        return json.dumps({"kind": self.kind, "seed": self.seed, "drawn": self._drawn, "state": state})

    def restore(self, state: str) -> None:
        """Continue from a state."""
        self._drawn = True
        raw = np.frombuffer(bytes.fromhex(state), np.uint8).copy()
        self._generator.set_state(self._torch.from_numpy(raw))


def restored(text: str, path: str) -> Draws:
    """Draws that continue from a saved state, which was read from `path`.

    Raises:
        StorageError: The text is not a valid state.
    """
    try:
        saved: Any = json.loads(text)
        if saved["kind"] == TorchDraws.kind:
            draws = TorchDraws(_number(saved["seed"]))
            draws.restore(saved["state"])
            return draws
        return NumpyDraws(generator_of(saved["state"]), _number(saved["seed"]), drawn=True)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise StorageError(event(f"Invalid generator state ({str(error)[:60]})", path)) from None


def _number(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise ValueError(f"invalid seed {value!r}"[:60])
    return value


def _seed_of(rng: np.random.Generator) -> int:
    sequence: Any = rng.bit_generator.seed_seq
    given = getattr(sequence, "entropy", None)
    if type(given) is int and given < 2**32:
        return given
    return int(sequence.generate_state(1)[0])
