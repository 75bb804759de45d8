"""Read the report, take the classifier away."""

from html import escape
from typing import Any

import gradio as gr

from shotfit.apps.app.session import Session
from shotfit.apps.app.shown import sentence


class ResultTab:
    """The tab; opened, it has the report and the files of the last fit."""

    def __init__(self, session: Session) -> None:
        self.project = session.project
        self.outputs = [
            gr.HTML(),
            gr.File(
                label="The classifier, its report, and the list of pictures",
                interactive=False,
                visible=False,
                elem_id="downloads",
            ),
            gr.HTML(elem_id="report"),
        ]

    def opened(self) -> tuple[Any, ...]:
        """Writes the report and the files, and shows them."""
        if self.project.fitted is None:
            words = sentence("There is no classifier yet: fit one first.")
            return words, gr.File(visible=False), ""
        page = self.project.report()
        paths = [self.project.archive(), page, self.project.pictures.manifest]
        # In a frame of its own, where no script runs: the two pages' styles do not meet.
        frame = (
            '<iframe title="Report" sandbox="allow-same-origin" srcdoc="'
            f'{escape(page.read_text(encoding="utf-8"), quote=True)}"></iframe>'
        )
        words = (
            "Unpack the zip file: shotfit predict, shotfit serve and "
            "FewShotClassifier.from_pretrained use the folder."
        )
        files = gr.File(value=[str(path) for path in paths], interactive=False, visible=True)
        return sentence(words), files, frame
