"""Other datasets that a run is measured on: cross-dataset transfer and domain generalisation."""

from collections.abc import Sequence

from shotfit.data.dataset import Split, select_classes
from shotfit.data.inputs import known_names, locate_name
from shotfit.data.sources import load_dataset
from shotfit.data.sources.imagenet_variants import list_variants
from shotfit.errors import DataError, unknown_name


def transfer_targets(names: Sequence[str], root: str | None = None) -> dict[str, Split]:
    """The test images of named datasets, all classes of each, by the datasets' names.

    Raises:
        UsageError: for a name that is no dataset's.
        DataError: for one that is not there, or has no test images.
    """
    targets = {}
    for name in names:
        found = locate_name(name)
        if found is None:
            raise unknown_name("dataset to transfer to", name, [*known_names(), *list_variants()])
        source, options = found
        dataset = load_dataset(source, root=root, **options)
        if not dataset.test:
            raise DataError(f"{dataset.name} has no test images to transfer to.")
        every = range(len(dataset.classnames))
        targets[dataset.name] = select_classes(dataset.test, dataset, every)
    return targets
