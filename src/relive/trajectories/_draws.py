"""The generators that draws use: NumPy's, or PyTorch's for RLinf's checkpoints."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .._base.extras import needs
from .._base.generators import generator_of, state_of
from .._base.types import Int64
from .._disk.json_files import damaged


class DrawGenerator:
    """Uniform integers, one call of the generator a draw, and its state as text.

    Args:
        generator: NumPy's or PyTorch's.
        seed: The seed to write into RLinf's checkpoints; None: the generator's own, if it has at most 32 bits.
        drawn: Whether anything has been drawn.

    Attributes:
        generator: As above.
        seed: As above.
    """

    def __init__(self, generator: Any, seed: int | None = None, *, drawn: bool = False) -> None:
        self.generator, self._drawn = generator, drawn
        self.seed = _seed_of(generator) if seed is None else seed

    @classmethod
    def torch(cls, seed: int, state: str | None = None) -> DrawGenerator:
        """Return a generator that draws by `torch.randint`, as in RLinf; it continues from `state`, if given.

        Raises:
            MissingExtra: PyTorch is not installed.
            ValueError: It is no state of its generators.
        """
        with needs("torch", "TrajectoryReplayBuffer.load_checkpoint"):
            import torch
        generator = torch.Generator().manual_seed(seed)
        if state is not None:
            try:
                generator.set_state(torch.from_numpy(np.frombuffer(bytes.fromhex(state), np.uint8).copy()))
            except RuntimeError as error:
                raise ValueError(str(error)) from None
        return cls(generator, seed, drawn=state is not None)

    def integers(self, below: int, n: int) -> Int64:
        """Draw `n` integers in `[0, below)`."""
        self._drawn = True
        if isinstance(self.generator, np.random.Generator):
            return self.generator.integers(0, below, n)
        import torch

        drawn: Int64 = torch.randint(0, below, (n,), generator=self.generator).numpy()
        return drawn

    def state(self) -> str:
        """Return the generator's state as JSON, with the seed, and a flag that is set once anything was drawn."""
        numpys = isinstance(self.generator, np.random.Generator)
        state = state_of(self.generator) if numpys else bytes(self.generator.get_state().tolist()).hex()
        facts = {"kind": "numpy" if numpys else "torch", "seed": self.seed, "drawn": self._drawn}
        return json.dumps({**facts, "state": state})


def restored(text: str, path: str) -> DrawGenerator:
    """Return a generator that continues from a saved state, which was read from `path`.

    Raises:
        CorruptionError: The text is not a valid state.
    """
    with damaged(path):
        saved: Any = json.loads(text)
        seed = saved["seed"]
        if type(seed) is not int or not -(2**63) <= seed < 2**64:
            raise ValueError(f"invalid seed {seed!r}"[:60])
        if saved["kind"] == "torch":
            return DrawGenerator.torch(seed, saved["state"])
        return DrawGenerator(generator_of(saved["state"]), seed, drawn=True)


def _seed_of(rng: np.random.Generator) -> int:
    sequence: Any = rng.bit_generator.seed_seq
    given = getattr(sequence, "entropy", None)
    if type(given) is int and given < 2**32:
        return given
    return int(sequence.generate_state(1)[0])
