"""Try new pictures, type a new class name, correct an answer with a click."""

from typing import Any

import gradio as gr

from shotfit.apps.app.session import Session, told, uploaded
from shotfit.apps.app.shown import answer_bars, percent, sentence
from shotfit.data.thumbnails import small_picture
from shotfit.errors import DataError

AT_ONCE = 32
"""Pictures that are asked about in one upload."""


class AskTab:
    """The tab; opened, it offers the classes as they are."""

    def __init__(self, session: Session) -> None:
        self.project = session.project
        with gr.Row():
            with gr.Column():
                self._lay_out_asking()
            with gr.Column():
                self._lay_out_answers()
        self.asked, self.place = gr.State([]), gr.State(0)
        self.outputs = [self.right]
        self._wire()

    def opened(self) -> Any:
        """The classes to correct an answer to."""
        return gr.Radio(choices=list(self.project.classes), value=None)

    def answered(self, paths: list[str], place: int) -> tuple[Any, ...]:
        """The pictures with their answers, and the one that is chosen with more of them."""
        uploads = uploaded(paths, AT_ONCE)
        found = self.project.answers(uploads) if uploads else []
        place = min(place, max(0, len(found) - 1))
        pictures = [
            (small_picture(content), f"{row[0].name}, {percent(row[0].probability)}")
            for (_, content), row in zip(uploads, found, strict=True)
        ]
        return (
            paths,
            place,
            gr.Gallery(value=pictures, selected_index=place if found else None),
            answer_bars(found[place]) if found else "",
            gr.Radio(choices=list(self.project.classes), value=None, visible=bool(found)),
        )

    def ask(self, paths: Any) -> tuple[Any, ...]:
        """Answers for new pictures."""
        given: list[str] = [paths] if isinstance(paths, str) else list(paths or ())
        return *self.answered(given, 0), "", None

    def add_class(self, name: str, paths: list[str], place: int) -> tuple[Any, ...]:
        """Adds a class by its name, and answers anew."""
        kept = self.project.add_class(name)
        words = sentence(f"{kept!r} is answered with from now on.")
        return *self.answered(paths, place), words, ""

    def correct(self, paths: list[str], place: int, name: str) -> tuple[Any, ...]:
        """Says what the chosen picture is, and answers anew.

        Raises:
            DataError: without a picture.
        """
        if not paths:
            raise DataError("Give a picture first.")
        (upload,) = uploaded(paths[place], 1)
        words = self.project.correct(upload, name)
        return *self.answered(paths, place), sentence(words)

    def choose(self, paths: list[str], event: gr.SelectData) -> tuple[Any, ...]:
        """Chooses another picture."""
        return self.answered(paths, event.index)

    def _lay_out_asking(self) -> None:
        self.files = gr.File(
            label="New pictures",
            file_count="multiple",
            file_types=["image"],
            height=150,
            elem_id="ask-files",
        )
        with gr.Accordion("Take a picture", open=False):
            self.camera = gr.Image(
                label="Camera", sources=["webcam"], type="filepath", format="png", height=240
            )
        with gr.Row(elem_classes="one-line"):
            self.name = gr.Textbox(
                label="A new class",
                placeholder="Its name is enough",
                max_lines=1,
                scale=3,
                min_width=120,
                elem_id="new-class",
            )
            self.add = gr.Button("Add class", scale=1, min_width=110, elem_id="add-class")
        self.said = gr.HTML(elem_id="ask-said")

    def _lay_out_answers(self) -> None:
        self.gallery = gr.Gallery(
            label="Answers",
            columns=3,
            height="auto",
            allow_preview=False,
            interactive=False,
            buttons=[],
            elem_id="answers",
        )
        self.bars = gr.HTML(elem_id="bars")
        self.right = gr.Radio(
            [], label="Wrong? Click what it is", visible=False, elem_id="correction"
        )

    def _wire(self) -> None:
        state = [self.asked, self.place, self.gallery, self.bars, self.right]
        named = [self.name, self.asked, self.place]
        self.files.upload(told(self.ask), [self.files], [*state, self.said, self.files])
        self.camera.input(told(self.ask), [self.camera], [*state, self.said, self.camera])
        self.add.click(told(self.add_class), named, [*state, self.said, self.name])
        self.name.submit(told(self.add_class), named, [*state, self.said, self.name])
        self.right.input(
            told(self.correct), [self.asked, self.place, self.right], [*state, self.said]
        )
        self.gallery.select(told(self.choose), [self.asked], state)
