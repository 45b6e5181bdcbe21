"""One line that says what a difference between two arms means."""

from __future__ import annotations

from relive_lab.statistics import Estimate

FEWEST = 5  # seeds; intervals of fewer are too narrow


def verdict(subject: str, what: str, difference: Estimate, base: float, seeds: int, signal: str = "") -> str:
    """Return the line.

    Args:
        subject: What the arm does differently.
        what: What was measured.
        difference: To the baseline, paired by seed.
        base: The baseline's mean.
        seeds: How many.
        signal: What is known of the signal that the arm goes by, as the end of a sentence.
    """
    parts = (difference.value, difference.low, difference.high)
    scale, unit, digits = 1.0, "", ".3g"
    # A share of nearly nothing says nothing.
    if abs(base) > 2.0 * max(map(abs, parts)):
        scale, unit, digits = 100.0 / abs(base), " %", ".1f"
    value, low, high = (scale * part for part in parts)
    whole = f"{what} {value:+{digits}}{unit} [{low:+{digits}}, {high:+{digits}}]"
    if seeds < FEWEST:
        count = "1 seed is" if seeds == 1 else f"{seeds} seeds are"
        return f"{count} too few for a verdict on {subject} ({whole}){_after(signal, '; ')}."
    if low <= 0.0 <= high:
        return f"{_capital(subject)} makes no clear difference here ({whole}){_after(signal, '; ')}."
    verb, bounds = ("costs", (-high, -low)) if high < 0.0 else ("gains", (low, high))
    size = f"{abs(value):{digits}}{unit}{' of' if unit else ' in'} the {what} here"
    joint = ": " if verb == "costs" else "; "
    return f"{_capital(subject)} {verb} {size} [{bounds[0]:{digits}}, {bounds[1]:{digits}}]{_after(signal, joint)}."


def _after(signal: str, joint: str) -> str:
    return f"{joint}{signal}" if signal else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
