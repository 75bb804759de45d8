"""Label pictures one click at a time, those first that help most."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from shotfit.apps.app.project import Answer
from shotfit.apps.app.session import Session, told
from shotfit.apps.app.shown import percent, sentence
from shotfit.apps.app.unlabelled import Unlabelled
from shotfit.data.thumbnails import small_picture
from shotfit.errors import DataError

LIKELY = 8
"""Classes that stand in front with their probabilities; all others follow."""


class LabelTab:
    """The tab; opened, it shows the picture to label next."""

    def __init__(self, session: Session) -> None:
        self.session = session
        with gr.Row():
            with gr.Column():
                self._lay_out_opening()
            with gr.Column():
                self._lay_out_labelling()
        self.current = gr.State(None)
        self.outputs = [self.current, self.picture, self.choice, self.passing, self.said]
        self._wire()

    def opened(self, words: str = "") -> tuple[Any, ...]:
        """The picture to label next, with what it may be."""
        queue = self.session.unlabelled
        found = queue.next() if queue is not None and self.session.project.classes else None
        there = found is not None
        options = [] if found is None else _options(found.answers)
        return (
            None if found is None else found.path,
            gr.Image(value=None if found is None else small_picture(found.path), visible=there),
            gr.Radio(choices=options, value=None, visible=there),
            gr.Button(visible=there),
            sentence(words or self._progress()),
        )

    def open_folder(self, place: str) -> tuple[Any, ...]:
        """Pictures of a folder of this computer.

        Raises:
            DataError: without a folder, or where the page is not for this computer alone.
        """
        if not self.session.local or not place.strip():
            raise DataError("Name a folder of pictures.")
        return self._begin([place.strip()])

    def open_files(self, paths: list[str]) -> tuple[Any, ...]:
        """Pictures that were given."""
        return *self._begin(paths), None

    def label(self, path: Any, name: str) -> tuple[Any, ...]:
        """Says what the picture is; the next one comes."""
        if self.session.unlabelled is not None and path is not None:
            self.session.unlabelled.label(path, name)
        return self.opened()

    def skip(self, path: Any) -> tuple[Any, ...]:
        """Leaves the picture without a label; the next one comes."""
        if self.session.unlabelled is not None and path is not None:
            self.session.unlabelled.skip(path)
        return self.opened()

    def _begin(self, places: Sequence[str]) -> tuple[Any, ...]:
        if not self.session.project.classes:
            raise DataError("Name the classes first, under Pictures.")
        queue = Unlabelled(self.session.project, places)
        self.session.unlabelled = queue
        return self.opened(" ".join([self._progress(), *queue.refused[:3]]))

    def _progress(self) -> str:
        queue = self.session.unlabelled
        if queue is None:
            return ""
        left = len(queue.waiting)
        if not left:
            return f"All are labelled: {queue.done} here. A fit learns from them."
        return f"{queue.done} labelled, {left} left. Fit now and then, for better guesses."

    def _lay_out_opening(self) -> None:
        self.files = gr.File(
            label="Pictures without a label",
            file_count="multiple",
            file_types=["image"],
            height=150,
            elem_id="label-files",
        )
        with gr.Row(elem_classes="one-line", visible=self.session.local):
            self.folder = gr.Textbox(
                label="Or a folder of this computer",
                placeholder="photos/unsorted",
                max_lines=1,
                scale=3,
                min_width=120,
                elem_id="label-folder",
            )
            self.start = gr.Button("Open", scale=1, min_width=90, elem_id="open-folder")
        self.said = gr.HTML(elem_id="label-said")

    def _lay_out_labelling(self) -> None:
        self.picture = gr.Image(
            label="What is this?",
            interactive=False,
            visible=False,
            height=260,
            buttons=[],
            elem_id="to-label",
        )
        self.choice = gr.Radio(
            [], label="One click, and the next one comes", visible=False, elem_id="label-choice"
        )
        self.passing = gr.Button("Skip", visible=False, size="sm", elem_id="skip")

    def _wire(self) -> None:
        self.start.click(told(self.open_folder), [self.folder], self.outputs)
        self.folder.submit(told(self.open_folder), [self.folder], self.outputs)
        self.files.upload(told(self.open_files), [self.files], [*self.outputs, self.files])
        self.choice.input(told(self.label), [self.current, self.choice], self.outputs)
        self.passing.click(told(self.skip), [self.current], self.outputs)


def _options(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    likely = [(f"{one.name} · {percent(one.probability)}", one.name) for one in answers[:LIKELY]]
    return likely + [(one.name, one.name) for one in answers[LIKELY:]]
