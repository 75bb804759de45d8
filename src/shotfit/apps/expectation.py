"""In words: how good a classifier is expected to be, and whether more images would help."""

from shotfit.evaluation.expected import ClassOutlook, Expected
from shotfit.system.terminal import printable

WORST = 5
MUCH, LITTLE = 3.0, 1.0
"""Points of accuracy from twice the images that are worth taking pictures for, and that are not."""


def expectation_lines(expected: Expected) -> list[str]:
    """The accuracy to expect, its curve over the shots, and what more images would do."""
    low, high = expected.interval()
    lines = [
        f"Expect {low:.0f}–{high:.0f} % on new images like these, among the trained classes (90 % "
        f"interval, from {expected.points[-1].images} shots held out in turn)."
    ]
    seen = ", ".join(
        f"{100 * point.accuracy:.0f} % with {point.share:.0%}" for point in expected.points
    )
    lines.append(
        f"Of these shots: {seen}; {expected.accuracy():.0f} % foreseen with all, "
        f"{expected.accuracy(2):.0f} % with twice as many."
    )
    lines.append(_advice(expected))
    weakest = weakest_classes(expected)
    if weakest:
        lines.append(f"More images help most of: {'; '.join(map(_words, weakest))}.")
    return [printable(line) for line in lines]


def weakest_classes(expected: Expected, most: int = WORST) -> list[ClassOutlook]:
    """The classes of which held-out shots are answered wrongly most often, the worst first."""
    wrong = [one for one in expected.classes if one.accuracy < 1]
    return sorted(wrong, key=lambda one: (one.accuracy, one.probability))[:most]


def _advice(expected: Expected) -> str:
    more, low, high = expected.gain()
    gain = f"twice as many images would add about {more:.1f} points ({low:.1f} to {high:.1f})"
    if more >= MUCH and low > 0:
        return f"Would more images help? Yes: {gain}."
    if high <= LITTLE:
        return f"Would more images help? Hardly: {gain}."
    return f"Would more images help? Perhaps: {gain}."


def _words(one: ClassOutlook) -> str:
    right = round(one.accuracy * one.images)
    taken = "" if one.taken_for is None else f", mostly taken for {one.taken_for!r}"
    return f"{one.name!r} ({right} of {one.images} right{taken})"
