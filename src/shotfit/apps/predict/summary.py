"""What a prediction comes to: how many of what, how sure, and what could not be read."""

from collections import Counter
from collections.abc import Iterable

from shotfit.apps.predict.table_file import Row
from shotfit.system.terminal import printable

MOST = 10
"""Classes and files that are named; the rest is counted."""
BINS = 1000
UNSURE = 0.5


class Summary:
    """Counts of rows, in constant memory but for one number a class."""

    def __init__(self) -> None:
        self.classes: Counter[str] = Counter()
        self.refused = 0
        self.broken = 0
        self._named: list[str] = []
        self._sure = [0] * (BINS + 1)

    def add(self, rows: Iterable[Row]) -> None:
        """Counts rows."""
        for row in rows:
            if "error" in row:
                self.broken += 1
                self._named += [row["image"]] if len(self._named) < MOST else []
            elif row.get("refused"):
                self.refused += 1
            elif row["answers"]:
                best = row["answers"][0]
                self.classes[best["class"]] += 1
                self._sure[int(BINS * best["probability"])] += 1

    @property
    def answered(self) -> int:
        """Images with a class."""
        return sum(self.classes.values())

    def __str__(self) -> str:
        lines = [f"{self.answered + self.refused + self.broken:,} images"]
        if self.classes:
            shown = [f"{count:,} {name}" for name, count in self.classes.most_common(MOST)]
            others = self.answered - sum(n for _, n in self.classes.most_common(MOST))
            more = len(self.classes) - MOST
            if others:
                shown.append(f"{others:,} of {more} other class{'es' if more > 1 else ''}")
            lines[0] += f": {', '.join(shown)}"
            unsure = sum(self._sure[: int(BINS * UNSURE)])
            sure = f"half of them with at least {self._median():.0%}"
            lines.append(f"Probability of the answer: {sure}, {unsure:,} below {UNSURE:.0%}.")
        if self.refused:
            lines.append(f"{self.refused:,} fit none of the classes.")
        if self.broken:
            some = ", ".join(self._named) + (" …" if self.broken > len(self._named) else "")
            lines.append(f"{self.broken:,} could not be read and have no answer: {some}")
        return printable("\n".join(lines))

    def _median(self) -> float:
        """The probability that half of the answers reach, to a thousandth."""
        left = (self.answered + 1) // 2
        for place in reversed(range(BINS + 1)):
            left -= self._sure[place]
            if left <= 0:
                return place / BINS
        return 0.0
