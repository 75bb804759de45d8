"""A fit that runs beside the page, and what there is to see of it."""

import html
import threading
import time

from shotfit.apps.app.project import Project, Stopped, Update
from shotfit.report.charts import curve_chart

POINTS = 200
"""Of a curve, at most: it is drawn anew twice a second."""
NAMES = ("Stage 1: the model is tuned", "Stage 2: the classifier")


class Fitting:
    """One fit of a project, in a thread of its own."""

    def __init__(
        self, project: Project, minutes: float | None = None, *, preset: str | None = None
    ) -> None:
        self.updates: list[Update] = []
        self.error: Exception | None = None
        """Why it ended without a classifier."""
        self._stop = threading.Event()
        self._started = time.monotonic()
        self.seconds = 0.0

        def work() -> None:
            try:
                project.fit(
                    minutes, preset=preset, observe=self.updates.append, stopped=self._stop.is_set
                )
            except Exception as error:
                self.error = error
            self.seconds = time.monotonic() - self._started

        self._thread = threading.Thread(target=work, name="fit", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Waits at most so long; whether it is still running."""
        self._thread.join(seconds)
        return self.running

    def stop(self) -> None:
        """Asks it to end after the update that it is at."""
        self._stop.set()

    def told(self) -> str:
        """Where it is, or how it ended, in a sentence."""
        if self.running:
            passed = time.monotonic() - self._started
            if not self.updates:
                return f"Reading the pictures and choosing what fits the time … {passed:.0f} s"
            last = self.updates[-1]
            if last.stage > 0 and last.iteration == last.total:
                return f"Asking held-out pictures what to expect … {passed:.0f} s"
            return (
                f"Stage {last.stage + 1}, update {last.iteration:,} of {last.total:,}: loss "
                f"{last.loss:.3f}, {last.accuracy:.0f} % of the batch right. {passed:.0f} s"
            )
        if isinstance(self.error, Stopped):
            return str(self.error)
        if self.error is not None:
            return f"The fit failed: {self.error}"
        if not self.updates:
            return f"Fitted in {self.seconds:.0f} s, by the preset that trains nothing."
        return f"Fitted in {self.seconds:.0f} s, {len(self.updates):,} updates."

    def curves(self) -> str:
        """The losses of its stages so far, as SVG in HTML; empty before the first update."""
        updates = list(self.updates)
        charts = []
        for stage, name in enumerate(NAMES):
            points = [(one.iteration, one.loss) for one in updates if one.stage == stage]
            if points:
                thin = points[:: len(points) // POINTS + 1]
                chart = curve_chart([*thin, points[-1]])
                charts.append(
                    f"<figure><figcaption>{html.escape(name)}</figcaption>{chart}</figure>"
                )
        return f'<div class="curves">{"".join(charts)}</div>' if charts else ""
