"""What the demo finds out: accuracy along training, and predictions."""

from dataclasses import dataclass, field

from shotfit.data.dataset import Example


@dataclass
class Curve:
    """Base and novel accuracy along training, and where the second stage begins."""

    iterations: list[int] = field(default_factory=list)
    base: list[float] = field(default_factory=list)
    novel: list[float] = field(default_factory=list)
    switch: int = 0

    def add(self, iteration: int, metrics: dict[str, float]) -> None:
        """Adds an evaluation (percent)."""
        self.iterations.append(iteration)
        self.base.append(metrics["base"])
        self.novel.append(metrics["novel"])


@dataclass(frozen=True)
class Prediction:
    """A test image, what it shows, and what the classifier said among all names."""

    example: Example
    truth: str
    answer: str
    trained: bool
