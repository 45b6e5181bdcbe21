"""Pipelines by name: the libraries' own buffers, relive, and what a user's function makes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.errors import ArgumentError, ReliveError, message

# Where each is; the first of a library is in the way in which a user's own loop calls it.
KNOWN = {
    "relive": "_relive.Recorded",
    "relive-by-hand": "_relive.ByHand",
    "relive-windows": "_relive.RecordedWindows",
    "relive-device": "_device.Device",
    "fasttd3": "_fasttd3.FastTD3",
    "fasttd3-prioritized": "_fasttd3.PrioritizedFastTD3",
    "sb3": "_sb3.Sb3Loop",
    "sb3-learn": "_sb3.Learn",
    "sb3-memory": "_sb3.OptimizedMemory",
    "sb3-cleanrl": "_sb3.CleanRL",
    "tianshou": "_tianshou.TianshouLoop",
    "tianshou-collector": "_tianshou.CollectorLoop",
    "tianshou-ignore-obs-next": "_tianshou.IgnoreObsNext",
    "cpprb": "_cpprb.CpprbLoop",
    "cpprb-done-either": "_cpprb.DoneEither",
    "cpprb-next-of": "_cpprb.NextOf",
    "cpprb-check-for-update": "_cpprb.Checked",
    "torchrl": "_torchrl.TorchRLCollected",
    "dreamerv3": "_dreamerv3.DreamerV3",
    "dreamerv3-mixture": "_dreamerv3.DreamerV3Mixture",
    "lightzero": "_lightzero.LightZero",
    "lightzero-spring": "_lightzero.LightZeroSpring",
    "ogbench": "_ogbench.OGBench",
    "r2dreamer": "_r2dreamer.R2Dreamer",
    "trl": "_trl.TRL",
    "lerobot": "_lerobot.OptimizeMemory",
    "lerobot-next-states": "_lerobot.NextStates",
    "relive.sb3": "_adapters.SB3",
    "relive.sb3-learn": "_adapters.SB3Learn",
    "relive.sb3-cleanrl": "_adapters.AdaptedCleanRL",
    "relive.tianshou": "_adapters.Tianshou",
    "relive.tianshou-collector": "_adapters.TianshouCollected",
    "relive.torchrl": "_adapters.TorchRL",
    "relive.lerobot": "_adapters.LeRobot",
}
# They have no n-step targets.
ONE_STEP = frozenset(
    {"sb3-memory", "cpprb-next-of", "lerobot", "lerobot-next-states", "relive.lerobot"}
    | {"dreamerv3", "dreamerv3-mixture", "lightzero", "lightzero-spring", "ogbench", "r2dreamer", "trl"}
)


def named(name: str) -> Callable[[], Any]:
    """Return the maker of the pipeline of a name.

    Args:
        name: One of `KNOWN`, or `module:function` for a function without arguments that returns a pipeline; the
            module is imported, so its code runs. Modules in the current folder are found.

    Raises:
        ArgumentError: There is no such pipeline, or the module cannot be imported.

    >>> named("relive")().items.__doc__
    'Return every item that can be drawn.'
    """
    if name in KNOWN:
        module, _, kind = KNOWN[name].partition(".")
        made: Callable[[], Any] = getattr(importlib.import_module(f".{module}", __name__), kind)
        return made
    module, _, function = name.partition(":")
    if not module or not function:
        wanted = f"one of {', '.join(f'`{known}`' for known in KNOWN)}, or `module:function`"
        got = f"`{name}`" if name else "none"
        raise ArgumentError(message(wanted, got, "relive doctor PIPELINE", "`relive doctor --list` says what each is"))
    found = _imported(module, name)
    for part in function.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ArgumentError(message(f"a function `{function}` in `{module}`", "none", "relive doctor PIPELINE"))
    return found if callable(found) else lambda: found


def _imported(module: str, name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # and it stays: the function may import more when it runs
    try:
        return importlib.import_module(module)
    except ReliveError:
        raise
    except Exception as error:
        got = f"`{type(error).__name__}: {error}`"
        raise ArgumentError(message(f"a module `{module}` that can be imported", got, name)) from error


def listed() -> str:
    """Return the names of the pipelines, one a line, each with what it is."""
    width = max(map(len, KNOWN))
    about = {name: (named(name).__doc__ or "").partition("\n")[0] for name in KNOWN}
    return "".join(f"{name:{width}}  {text}\n" for name, text in about.items())


def template() -> str:
    """Return the text of a module with a pipeline, to begin one's own with."""
    return Path(__file__).with_name("_template.py").read_text("utf-8")
