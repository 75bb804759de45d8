"""Fit under a chosen time, with the curve as it grows."""

from collections.abc import Iterator

import gradio as gr

from shotfit.apps.app.fitting import Fitting
from shotfit.apps.app.session import Session
from shotfit.apps.app.shown import sentence, sentences

CHOICES = (
    ("At once", "instant"),
    ("Fast", "fast"),
    ("15 seconds", 0.25),
    ("30 seconds", 0.5),
    ("1 minute", 1.0),
    ("3 minutes", 3.0),
    ("10 minutes", 10.0),
    ("1 hour", 60.0),
)
"""Presets by name, and times in minutes."""
EVERY = 0.5
"""Seconds between two pictures of the curve."""

Seen = tuple[str, str, str]


class FitTab:
    """The tab; opened, it shows the fit that is running or the last one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.time = gr.Radio(
            CHOICES,
            value=1.0,
            label="Time",
            info="The strongest preset that ends in time; or the two quickest, however long",
            elem_id="time",
        )
        with gr.Row():
            self.start = gr.Button("Fit", variant="primary", elem_id="fit")
            self.stop = gr.Button("Stop", elem_id="stop")
        self.outputs = [
            gr.HTML(elem_id="fit-said"),
            gr.HTML(elem_id="curves"),
            gr.HTML(elem_id="expected"),
        ]
        self.start.click(self.fit, [self.time], self.outputs, show_progress="hidden")
        self.stop.click(self.end, None, None)

    def opened(self) -> Seen:
        """Where the fit is, its curves, and at its end what to expect."""
        fitting, project = self.session.fitting, self.session.project
        if fitting is None:
            return "", "", sentences(project.expectation())
        lines = [] if fitting.running else project.expectation()
        return sentence(fitting.told()), fitting.curves(), sentences(lines)

    def fit(self, choice: float | str) -> Iterator[Seen]:
        """Starts a fit and shows it to its end; of one that is running already, the rest."""
        session = self.session
        if session.fitting is None or not session.fitting.running:
            minutes, preset = (None, choice) if isinstance(choice, str) else (choice, None)
            session.fitting = Fitting(session.project, minutes, preset=preset)
        while session.fitting.wait(EVERY):
            yield self.opened()
        if session.unlabelled is not None:
            session.unlabelled.again()
        yield self.opened()

    def end(self) -> None:
        """Asks the fit to end."""
        if self.session.fitting is not None:
            self.session.fitting.stop()
