"""Which pretrained model a saved classifier needs, and whether it may be fetched unasked.

A saved classifier holds what was learned and names the model that it belongs to. One from a
stranger may name anything: a folder elsewhere on this machine, a repository to download. Such a
name is followed only where the user saved the classifier, or said the name.
"""

from dataclasses import dataclass
from pathlib import Path

from shotfit.backbone.catalogue import KNOWN_NAMES
from shotfit.backbone.hub import EMBEDDED, cached_checkpoint
from shotfit.errors import DataError
from shotfit.system.paths import inside
from shotfit.system.signature import is_own, sign


class OutsideModelError(DataError):
    """A saved classifier needs a model outside its folder, and nobody said to use that one."""

    def __init__(self, folder: Path, model: str) -> None:
        self.model = model
        super().__init__(
            f"{folder} was fitted with the model {model!r}, outside of it, and was not saved by "
            "you here. If you trust that model, name it: --backbone MODEL, or in Python "
            "from_pretrained(..., backbone=MODEL)."
        )


@dataclass(frozen=True)
class Reference:
    """The pretrained model of a saved classifier."""

    name: str
    """A hub id, an embedded model, or the folder as it was given to fit."""
    revision: str | None = None
    beside: str | None = None
    """Where a local model lies as seen from the saved folder; None for others."""

    def signed(self) -> str | None:
        """The signature of a classifier that is saved here; None where no key can be kept."""
        return sign(self._text())

    def resolve(self, folder: Path, signature: object, given: str | None = None) -> str:
        """What to load: `given` where the user said so, else what is referred to.

        Raises:
            OutsideModelError: for a model outside `folder` that would be opened or downloaded only
                because a stranger's file says so.
        """
        if given is not None:
            return given
        beside = folder / self.beside if self.beside else None
        there = beside is not None and beside.is_dir()
        model = str(beside) if there else self.name
        if self.name in EMBEDDED and not there:
            return self.name
        if is_own(self._text(), signature):
            return model
        if there and inside(folder, str(self.beside)) is None:
            raise OutsideModelError(folder, model)
        if not there and not self._known():
            raise OutsideModelError(folder, model)
        return model

    def _known(self) -> bool:
        """Whether the name alone leads to nothing new: it is well known, or here already."""
        if self.name in KNOWN_NAMES:
            return True
        if Path(self.name).expanduser().exists():
            return False
        try:
            return cached_checkpoint(self.name, self.revision) is not None
        except DataError:  # no hub id
            return False

    def _text(self) -> str:
        return "\n".join((self.name, self.revision or "", self.beside or ""))
