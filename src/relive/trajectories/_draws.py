"""Where the random numbers of draws come from: a NumPy generator, or, for RLinf's checkpoints, a PyTorch one."""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np

from .._types import Int64
from ..errors import MissingExtra, StorageError, message


class Draws(Protocol):
    """Uniform integers, and a state that can be saved as text.

    Attributes:
        seed: What RLinf is to seed its generator with: what this one was seeded with, if that has at most 32 bits.
    """

    seed: int

    def integers(self, below: int, n: int) -> Int64:
        """`n` integers in `[0, below)`."""
        ...

    def state(self) -> str:
        """The state, as text: JSON with the seed, and whether anything has been `drawn`."""
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
        told = {"kind": self.kind, "seed": self.seed, "drawn": self._drawn}
        return json.dumps({**told, "state": self.rng.bit_generator.state}, default=np.ndarray.tolist)


class TorchDraws:
    """`torch.randint` of a generator of its own, as RLinf draws.

    Raises:
        MissingExtra: PyTorch is not installed.
    """

    kind = "torch"

    def __init__(self, seed: int) -> None:
        try:
            import torch
        except ImportError as error:
            wanted, remedy = "the package `torch`, whose generator draws", "pip install 'relive[train]'"
            raise MissingExtra(message(wanted, "none", "TrajectoryReplayBuffer.load_checkpoint", remedy)) from error
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
        """Go on from a state."""
        self._drawn = True
        raw = np.frombuffer(bytes.fromhex(state), np.uint8).copy()
        self._generator.set_state(self._torch.from_numpy(raw))


def restored(text: str, path: str) -> Draws:
    """Draws that go on from what `state` gave, and what was read from `path`.

    Raises:
        StorageError: The text is no such state.
    """
    try:
        told: Any = json.loads(text)
        if told["kind"] == TorchDraws.kind:
            draws = TorchDraws(_number(told["seed"]))
            draws.restore(told["state"])
            return draws
        return NumpyDraws(np.random.Generator(_bits(told["state"])), _number(told["seed"]), drawn=True)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise StorageError(message("a generator's state", f"`{str(error)[:60]}`", path)) from None


def _bits(state: Any) -> np.random.BitGenerator:
    """The bit generator of a state. NumPy believes what stands there of a position in a buffer, so it is held here."""
    name = state["bit_generator"]
    if name not in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
        raise ValueError(f"bit generator {name!r}"[:60])
    place, most = (state["state"]["pos"], 624) if name == "MT19937" else (state.get("buffer_pos", 0), 4)
    if type(place) is not int or not 0 <= place <= most:
        raise ValueError(f"position {place!r}"[:60])
    bits: np.random.BitGenerator = getattr(np.random, name)()
    bits.state = state
    return bits


def _number(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise ValueError(f"a seed of {value!r}"[:60])
    return value


def _seed_of(rng: np.random.Generator) -> int:
    sequence: Any = rng.bit_generator.seed_seq
    given = getattr(sequence, "entropy", None)
    if type(given) is int and given < 2**32:
        return given
    return int(sequence.generate_state(1)[0])
