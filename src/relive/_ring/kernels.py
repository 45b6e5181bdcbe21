"""Chooses between the native kernels and the NumPy ones; `RELIVE_KERNELS=numpy|native` forces one."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from .._base.forks import importing
from ..errors import ArgumentError, ReliveWarning, message

if TYPE_CHECKING:
    from .kernel_types import Kernels

VARIABLE = "RELIVE_KERNELS"
_MODULES = {"numpy": "relive._ring.kernels_numpy", "native": "relive._ring._native"}

_active: Kernels | None = None
_warned = False


def _native() -> Kernels:
    """Import the extension.

    Raises:
        ArgumentError: If `RELIVE_SIMD` names an instruction set that this build or this processor does not have.
        ImportError: If there is no extension (then a ModuleNotFoundError), or it does not load.
    """
    try:
        with importing:
            return cast("Kernels", importlib.import_module(_MODULES["native"]))
    except ImportError as error:
        if isinstance(error.__cause__, ValueError):
            raise ArgumentError(str(error.__cause__)) from error
        raise


def _load(name: str, at: str) -> Kernels:
    """Load the back end called `name`."""
    if name not in _MODULES:
        raise ArgumentError(message("`numpy` or `native`", f"`{name}`", at, "leave it out to let relive choose"))
    if name == "numpy":
        return cast("Kernels", importlib.import_module(_MODULES[name]))
    try:
        return _native()
    except ImportError as error:
        remedy = "install relive from a wheel, or from source with a C++20 compiler"
        raise ArgumentError(message("the native kernels", f"none ({error})", at, remedy)) from error


def _choose() -> Kernels:
    """Choose the back end that the environment names, else the native one, else NumPy's."""
    forced = os.environ.get(VARIABLE)
    if forced:
        return _load(forced, VARIABLE)
    try:
        return _native()
    except ModuleNotFoundError:
        return cast("Kernels", importlib.import_module(_MODULES["numpy"]))


def active() -> Kernels:
    """Return the module that has the kernels, by the same names in both back ends; see `Kernels`."""
    global _active
    if _active is None:
        _active = _choose()
    return _active


def is_native() -> bool:
    """Return True if the kernels are the native ones."""
    return active().__name__ == _MODULES["native"]


@contextmanager
def use(name: str) -> Iterator[Kernels]:
    """Give what is built inside the `with` block the named kernels, `"numpy"` or `"native"`."""
    global _active
    before, _active = _active, _load(name, "_kernels.use(name)")
    try:
        yield _active
    finally:
        _active = before


def warn_once() -> None:
    """Warn once per process that the slower NumPy kernels are used, unless `RELIVE_KERNELS` asks for them."""
    global _warned
    if _warned or active().__name__ != _MODULES["numpy"] or os.environ.get(VARIABLE) == "numpy":
        return
    _warned = True
    warnings.warn(
        "relive runs on its NumPy kernels, many times slower than the native ones, which were not installed with it. "
        f"Reinstall it from a wheel that has them, or where a C++ compiler is; {VARIABLE}=numpy accepts this.",
        ReliveWarning,
        stacklevel=4,  # the constructor is wrapped
    )
