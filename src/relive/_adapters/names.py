"""Names under which data sets keep ends, successors and rewards, so that none of these is left out unseen."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..schema import RESERVED

WITH_ARTICLE = {"end": "an end", "reward": "a reward", "successor": "a successor"}
_END = r"(is|not|non)?(done|terminal|terminated|termination|timeout|truncated|truncation|absorbing)s?"
_WHOLE = r"(is_)?(last|first|start|end|over|final|initial|mask|valid)s?|trunc|term"
_EPISODE = r"(episode|ep|traj|trajectory|demo|rollout)_(end|start|over|final|first|last|len|length|boundar(y|ie))s?"
_NUMBER = r"((episode|ep|traj|trajectory|demo|rollout)_(id|idx|index|indice|num|number)s?|(is_)?first|(is_)?start)"
_OBS = r"(obs|observation|state|image|s)s?"
_WORDS = {
    "end": re.compile(rf"(^|_)({_END}|discounts?|game_?over)(_|$)|^({_WHOLE})$|^({_EPISODE})(_|$)"),
    "reward": re.compile(r"(^|_)(reward|rew|rwd)s?(_|$)"),
    "successor": re.compile(rf"(^|_)(next|successor|prime)(_|{_OBS}|$)|^{_OBS}_?2$|^(new|final|last|after)_{_OBS}$"),
}
_NUMBERS = re.compile(rf"^{_NUMBER}$")
_REMEDIES = {
    "end": '`terminals="{0}"` if it tells the ends in terminal states, `timeouts="{0}"` if it tells ends from outside;'
    " of its opposite the same with `1 - {0}` under another name",
    "reward": '`rewards="{0}"` takes it for the reward',
    "successor": '`next_observations="{0}"` takes it for the observation after each step',
}


def role_of(name: str, numbered: bool = False) -> str | None:
    """Guess the role of an array by its name: `"end"`, `"reward"` or `"successor"`; None: another one.

    Args:
        name: The name; nested names are separated by slashes or dots.
        numbered: Whether numbers of episodes tell ends, too, as they do in flat arrays.

    >>> role_of("dones_float"), role_of("obs_next"), role_of("next.reward"), role_of("end_effector")
    ('end', 'successor', 'reward', None)
    """
    words = re.sub(r"[^0-9a-z]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    last = re.sub(r"[^0-9a-z]+", "_", re.split(r"[/:]", name)[-1].lower()).strip("_")
    if "action" in words:  # masks of legal actions, the action after the next observation
        return None
    if numbered and _NUMBERS.search(last):
        return "end"
    return next((role for role, known in _WORDS.items() if known.search(words) or known.search(last)), None)


def remedy_for(name: str, role: str) -> str:
    """Compose what to write where an array has a role that nothing took from it."""
    kept = "" if name in RESERVED else f'`extras=["{name}"]` stores it as a further field, and '
    return f"{_REMEDIES[role].format(name)}; {kept}a mapping without it leaves it out"


def unused(data: Mapping[str, Any], used: Collection[str], above: str = "") -> Iterator[str]:
    """Yield the paths of arrays, separated by slashes, that are not in `used`, except for known metadata."""
    for name, value in data.items():
        path = f"{above}{name}"
        if path in used or path.partition("/")[0] in ("metadata", "episode_metadata"):
            continue
        if isinstance(value, Mapping) and role_of(str(name)) is None:
            yield from unused(value, used, f"{path}/")
        else:
            yield path
