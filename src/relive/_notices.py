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

    def look(self, added: int, cuts: int, unbootstrapped: int, stacklevel: int = 4) -> None:
        """Warn about truncated steps without a final observation, and about more than one cut in ten steps."""
        texts = {}
        if unbootstrapped:
            texts["unbootstrapped"] = message(
                "a final observation with every truncated step",
                f"{unbootstrapped} without",
                "$.next_obs",
                "give `next_obs` with it; without, such items are drawn with discount 0",
            )
        if cuts * 10 > added >= _ENOUGH_STEPS:
            texts["cuts"] = message(
                "`obs` to be the `next_obs` of the step before, byte for byte, while an episode goes on",
                f"{cuts} cuts in {added} steps",
                "$.obs",
                "observations change between calls (normalization, a reused array, missing end flags?)",
            )
        for kind, text in texts.items():
            if kind not in self._said:
                self._said.add(kind)
                warnings.warn(text, ReliveWarning, stacklevel=stacklevel - 1)
