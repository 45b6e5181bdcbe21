"""What is legal but probably not meant, said once per buffer."""

from __future__ import annotations

import warnings

from .errors import ReliveWarning, message

# Cuts are ordinary in small numbers; this many steps must have been seen before their share means anything.
_ENOUGH_STEPS = 100


class Notices:
    """Says each kind of notice once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def look(self, added: int, cuts: int, unbootstrapped: int) -> None:
        """Warn about truncated steps without a final observation, and about more than one cut in ten steps."""
        if unbootstrapped:
            remedy = "give `next_obs` with it; without, such items are drawn with discount 0"
            self._say(
                "a final observation with every truncated step", f"{unbootstrapped} without", "$.next_obs", remedy
            )
        if cuts * 10 > added >= _ENOUGH_STEPS:
            text = "`obs` to be the `next_obs` of the step before, byte for byte, while an episode goes on"
            remedy = "observations change between calls (normalization, a reused array, missing end flags?)"
            self._say(text, f"{cuts} cuts in {added} steps", "$.obs", remedy)

    def _say(self, expected: str, got: str, at: str, remedy: str) -> None:
        if expected not in self._said:
            self._said.add(expected)
            warnings.warn(message(expected, got, at, remedy), ReliveWarning, stacklevel=5)
