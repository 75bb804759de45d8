"""Name classes, give pictures, see what `check` says of them."""

from typing import Any

import gradio as gr

from shotfit.apps.app.session import Session, told, uploaded
from shotfit.apps.app.shown import class_table, diagnoses_list, sentence, sentences
from shotfit.data.thumbnails import small_picture
from shotfit.errors import DataError

AT_ONCE = 500
"""Pictures in one upload."""
SHOWN = 60
"""Pictures of a class in the gallery."""


class PicturesTab:
    """The tab; opened, it shows the classes as they are."""

    def __init__(self, session: Session) -> None:
        self.project = session.project
        with gr.Row():
            with gr.Column():
                self._lay_out_giving()
            with gr.Column():
                self._lay_out_classes()
        self.chosen = gr.State(None)
        self.outputs = [self.name, self.classes, self.gallery, self.chosen]
        self._wire()

    def opened(self) -> tuple[Any, ...]:
        """What it shows when it is opened."""
        return self.shown(None)

    def shown(self, current: str | None) -> tuple[Any, ...]:
        """The names to choose from, the table, the pictures of the `current` class."""
        names = list(self.project.classes)
        current = current if current in names else None
        own = [] if current is None else self.project.pictures.of(current)[:SHOWN]
        fitted = self.project.fitted
        known = {} if fitted is None else dict(fitted.known.classes.origins)
        return (
            gr.Dropdown(choices=names, value=current),
            class_table(self.project.pictures.counts(), known),
            [(small_picture(path), path.stem.rpartition("-")[0]) for path in own],
            None,
        )

    def give(self, name: str | None, paths: Any) -> tuple[Any, ...]:
        """Takes pictures of a class.

        Raises:
            DataError: without a name, or for too many.
        """
        if not (name or "").strip():
            raise DataError("Name the class first, then give its pictures.")
        added = self.project.add_pictures(str(name), uploaded(paths, AT_ONCE))
        words = f"{added.count} picture{'' if added.count == 1 else 's'} of {name!r} taken."
        kept = self.project.add_class(str(name))
        return *self.shown(kept), sentences([words, *added.refused]), None

    def add_name(self, name: str | None) -> tuple[Any, ...]:
        """Adds a class without pictures."""
        kept = self.project.add_class(name or "")
        return *self.shown(kept), sentence(f"{kept!r} is a class.")

    def load_example(self) -> tuple[Any, ...]:
        """Adds classes of the embedded suite."""
        first = self.project.add_example()
        return *self.shown(first), sentence("An example: five drawings of each class.")

    def take_away(self, name: str | None, place: int | None) -> tuple[Any, ...]:
        """Removes the picture that was chosen.

        Raises:
            DataError: when none was.
        """
        own = self.project.pictures.of(name or "")
        if place is None or place >= len(own):
            raise DataError("Choose a picture first.")
        self.project.pictures.remove(own[place])
        return *self.shown(name), sentence("The picture is removed.")

    def forget(self, name: str | None) -> tuple[Any, ...]:
        """Removes a class and its pictures."""
        self.project.remove_class(name or "")
        return *self.shown(None), sentence(f"{name!r} and its pictures are removed.")

    def check(self) -> str:
        """What `shotfit check` says."""
        return diagnoses_list(self.project.diagnoses())

    def _lay_out_giving(self) -> None:
        self.name = gr.Dropdown(
            label="Class",
            info="Type a new name, or choose one",
            choices=list(self.project.classes),
            value=None,
            allow_custom_value=True,
            elem_id="class-name",
        )
        self.files = gr.File(
            label="Pictures of this class",
            file_count="multiple",
            file_types=["image"],
            height=150,
            elem_id="class-files",
        )
        with gr.Accordion("Take a picture", open=False):
            self.camera = gr.Image(
                label="Camera", sources=["webcam"], type="filepath", format="png", height=240
            )
        self.said = gr.HTML()
        with gr.Row():
            self.add = gr.Button("Add the name alone", size="sm")
            self.example = gr.Button("Load an example", size="sm")

    def _lay_out_classes(self) -> None:
        self.classes = gr.HTML(elem_id="class-table")
        self.gallery = gr.Gallery(
            label="Pictures of the class",
            columns=4,
            height="auto",
            allow_preview=False,
            interactive=False,
            buttons=[],
            elem_id="class-gallery",
        )
        with gr.Row():
            self.remove = gr.Button("Remove the chosen picture", size="sm")
            self.forgetting = gr.Button("Remove the class", size="sm", variant="stop")
        self.checking = gr.Button("Check the pictures")
        self.diagnoses = gr.HTML(elem_id="diagnoses")

    def _wire(self) -> None:
        said = [*self.outputs, self.said]
        self.files.upload(told(self.give), [self.name, self.files], [*said, self.files])
        self.camera.input(told(self.give), [self.name, self.camera], [*said, self.camera])
        self.add.click(told(self.add_name), [self.name], said)
        self.example.click(told(self.load_example), None, said)
        self.remove.click(told(self.take_away), [self.name, self.chosen], said)
        self.forgetting.click(told(self.forget), [self.name], said)
        self.gallery.select(_place, None, [self.chosen])
        self.name.select(self.shown, [self.name], self.outputs)
        self.checking.click(told(self.check), None, [self.diagnoses])


def _place(event: gr.SelectData) -> int:
    return event.index
