"""Whether a result is of the images that are there now, or of others with the same names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shotfit.bench.cost import by_dataset
from shotfit.data.contents import task_content
from shotfit.data.dataset import Dataset
from shotfit.data.sources import load_dataset
from shotfit.data.transfer import transfer_targets
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment, task_of
from shotfit.records import Record


def current_content(
    experiment: Experiment, root: str | None = None, dataset: Dataset | None = None
) -> str | None:
    """What a record of the experiment would have as its `content`; None where its images are not
    here, as on a machine that only has the records."""
    try:
        dataset = dataset or load_dataset(experiment.source, root=root, **experiment.data)
        task = task_of(experiment, dataset, root)
        return task_content(task, transfer_targets(experiment.transfer, root))
    except (DataError, UsageError):
        return None


def is_current(
    experiment: Experiment, content: str, root: str | None = None, dataset: Dataset | None = None
) -> bool:
    """Whether a result with this `content` is of the images that are there now. One that says
    nothing of its images, and one whose images are not here, is taken as it is."""
    if not content:
        return True
    return current_content(experiment, root, dataset) in (None, content)


def changed_runs(
    experiments: Sequence[Experiment], known: Mapping[str, Record], root: str | None = None
) -> list[str]:
    """The ids of the experiments whose records are of other images than there are now.

    Every file is read once, and none for records that say nothing of their images.
    """
    changed = []
    for group in by_dataset([e for e in experiments if e.id in known and known[e.id].content]):
        try:
            dataset = load_dataset(group[0].source, root=root, **group[0].data)
        except (DataError, UsageError):
            continue
        changed += [
            one.id for one in group if not is_current(one, known[one.id].content, root, dataset)
        ]
    return changed


def refuse_changed(files: Sequence[Path]) -> None:
    """Says that results would be replaced.

    Raises:
        DataError: when there are any.
    """
    if files:
        results = f"{len(files)} results are" if len(files) > 1 else "A result is"
        raise DataError(
            f"{results} of other images than there are now under the same names"
            f"{', the first' if len(files) > 1 else ''}: {files[0]}. --overwrite runs "
            f"{'them' if len(files) > 1 else 'it'} again; another --results keeps both."
        )
