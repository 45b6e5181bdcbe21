"""`import relive` loads NumPy and nothing else."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ["torch", "jax", "ray", "gymnasium", "minari", "safetensors", "matplotlib", "tyro", "rich", "skfolio"]


def loaded_after(statement: str) -> list[str]:
    """The optional packages that a fresh process holds after a statement."""
    report = f"import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{report}"], capture_output=True, text=True, check=True, timeout=120
    )
    return run.stdout.split()


def test_importing_and_using_a_buffer_loads_no_optional_package() -> None:
    use = (
        "import relive, numpy as np\n"
        "buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(3), action=relive.Field()), 8, seed=0)\n"
        "buffer.add(obs=np.zeros(3), action=0, reward=0, next_obs=np.ones(3), terminated=False, truncated=False)\n"
        "buffer.sample(2)"
    )
    assert loaded_after(use) == []


def test_meta_a_loaded_package_is_seen() -> None:
    assert loaded_after("import relive, rich") == ["rich"]
