"""Changes to several arrays: all of them happen, or none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from operator import call, setitem
from types import TracebackType
from typing import Any

from .types import Array


class Journal:
    """Undoes every change that was made through it if the `with` block raises.

    For Python code that changes several arrays line by line: an exception between two lines, such as Ctrl-C, leaves
    everything as it was. Native kernels do not need it, since Python runs signal handlers between its own instructions.

    >>> import numpy as np
    >>> array = np.zeros(3)
    >>> try:
    ...     with Journal() as journal:
    ...         journal.put(array, [0, 2], 1.0)
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     print(array)
    [0. 0. 0.]
    """

    __slots__ = ("_undo",)

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def put(self, array: Array, key: Any, value: Any) -> None:
        """Set `array[key] = value`."""
        self._undo.append(partial(setitem, array, key, array[key].copy()))
        array[key] = value

    def set(self, owner: object, name: str, value: object) -> None:
        """Set `owner.name = value`."""
        self._undo.append(partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # One call into C, which no signal handler can interrupt.
            deque(map(call, reversed(self._undo)), maxlen=0)
