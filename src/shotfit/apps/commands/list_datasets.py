"""shotfit list-datasets"""

import json

from shotfit.apps import options

EXAMPLES = (
    "shotfit list-datasets",
    "shotfit fit animals --shots 4 --out animals",
)


def list_datasets(as_json: options.Json = False) -> None:
    """The embedded tasks, with their sizes."""
    from shotfit.data.sources import load_dataset
    from shotfit.data.sources.demo import list_tasks

    rows = []
    for name in list_tasks():
        dataset = load_dataset("demo", name=name)
        rows.append(
            {
                "name": name,
                "classes": len(dataset.classnames),
                "train": len(dataset.train),
                "test": len(dataset.test),
                "examples": list(dataset.classnames[:4]),
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "classes", "train", "test", "such as")
    for row in rows:
        counts = (str(row[key]) for key in ("classes", "train", "test"))
        table.add_row(row["name"], *counts, ", ".join(row["examples"]))
    Console().print(table)
