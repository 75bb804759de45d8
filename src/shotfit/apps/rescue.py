"""What was trained is not thrown away: where its place fails, it is saved elsewhere."""

import shlex
import tempfile
from pathlib import Path

from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError


def save_somewhere(classifier: FewShotClassifier, out: Path) -> Path:
    """Saves in `out`; where that fails, in a new folder beside where the command was started, in
    the home folder or among temporary files.

    Raises:
        DataError: when `out` could not be written, naming the folder that has it instead.
    """
    try:
        return classifier.save_pretrained(out)
    except DataError as error:
        for place in (Path.cwd, Path.home, lambda: Path(tempfile.gettempdir())):
            try:
                folder = Path(tempfile.mkdtemp(prefix=f"{out.name}-", dir=place()))
                classifier.save_pretrained(folder)
            except (OSError, RuntimeError, DataError):
                continue
            raise DataError(
                f"{error} What was trained is saved in {folder}; `shotfit info "
                f"{shlex.quote(str(folder))}` shows it."
            ) from error
        raise
