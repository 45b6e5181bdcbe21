"""What a choice of the user's own can do, with the defaults of its protocol for what it leaves out.

A protocol here has abstract methods, which every choice has, and others with a default, such as None for "cannot".
"""

from __future__ import annotations

from typing import Any, TypeVar

P = TypeVar("P")


class _Completed:
    """A choice and, under the names that it lacks, the defaults."""

    def __init__(self, choice: object, names: dict[str, Any]) -> None:
        vars(self).update(names, _choice=choice)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_choice"], name)


def completed(choice: P, protocol: type[Any]) -> P:
    """Return `choice` with all names of `protocol`: itself if its class inherits from it."""
    if protocol in type(choice).__mro__:
        return choice
    names = {}
    for name, member in vars(protocol).items():
        if name[0] != "_":
            default = None if getattr(member, "__isabstractmethod__", False) else member.__get__(choice)
            names[name] = getattr(choice, name, default)
    found: Any = _Completed(choice, names)
    return found  # type: ignore[no-any-return]
