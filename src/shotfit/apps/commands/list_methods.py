"""shotfit list-methods"""

import json
from typing import Annotated

import typer


def list_methods(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Every adaptation method, with what it is, what it can do, the images on which it chooses what
    training leaves open (an epoch, a weight), and the models it works with."""
    from shotfit import methods
    from shotfit.recipe import FORMS

    rows = []
    for name in sorted([*methods.list_methods(), *FORMS]):
        form = FORMS.get(name)
        method = methods.get_method(form.method if form else name)
        summary = (method.__doc__ or "").strip()
        module_doc = __import__(method.__module__, fromlist=["_"]).__doc__ or ""
        options = (
            " ".join(f"-o {key}={value}" for key, value in form.options.items()) if form else ""
        )
        rows.append(
            {
                "name": name,
                "summary": f"{form.method} {options}"
                if form
                else module_doc.strip().split("\n")[0] or summary,
                "unseen_classes": method.open_vocabulary,
                "first_stage": method.first_stage,
                "selects_on": method.selects_on,
                "families": list(method.families),
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    # Narrow headers leave the room to what it does.
    table = Table("method", "what it does", "unseen\nclasses", "first\nstage")
    table.add_column("selects on", max_width=10)
    table.add_column("families", no_wrap=True)
    for row in rows:
        table.add_row(
            row["name"],
            row["summary"],
            "yes" if row["unseen_classes"] else "no",
            "yes" if row["first_stage"] else "no",
            row["selects_on"],
            ", ".join(row["families"]),
        )
    Console().print(table)
