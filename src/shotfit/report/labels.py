"""How methods and datasets are written in tables and figures."""

from shotfit.methods import published_names

DATASETS = {
    "average": "Average",
    "imagenet": "ImageNet",
    "caltech101": "Caltech101",
    "oxford_flowers": "Flowers",
    "oxford_pets": "Pets",
    "stanford_cars": "Cars",
    "food101": "Food101",
    "fgvc_aircraft": "Aircraft",
    "sun397": "SUN397",
    "dtd": "DTD",
    "eurosat": "EuroSAT",
    "ucf101": "UCF101",
}


def method_label(row: str) -> str:
    """The written name of a row: `2sfs_lora[M=100]` is "2SFS (LoRA) [M=100]"."""
    name, bracket, rest = row.partition("[")
    inner = name.removeprefix("2sfs_")
    names = published_names()
    label = names[inner].label if inner in names else inner
    if inner != name:
        label = f"2SFS ({label})"
    return f"{label} [{rest}" if bracket else label


METRICS = {"harmonic_mean": "HM", "all": "Accuracy"}


def metric_title(metric: str) -> str:
    """The title of a metric's column; others by their own names."""
    return METRICS.get(metric, metric.replace("_", " ").capitalize())


def axis_title(metric: str) -> str:
    """The same in full, where there is room."""
    return "Harmonic mean" if metric == "harmonic_mean" else metric_title(metric)


def dataset_label(name: str) -> str:
    """The written name of a dataset; unknown ones with spaces for underscores."""
    return DATASETS.get(name, name.replace("_", " "))
