"""What `shotfit list-methods` shows: methods, presets, and the options of one of them."""

from typing import Any

from rich.console import Console
from rich.table import Table

from shotfit.config import options_of
from shotfit.methods import get_method, published_names
from shotfit.methods.published import TaskFacts
from shotfit.plan import plan
from shotfit.presets import PRESETS
from shotfit.recipe import Recipe, named_recipe, two_stage

TWO_STAGE = "two stages: LayerNorm, then a linear classifier (2sfs:FIRST has another first stage)"
# What published options depend on; a task of middling size.
USUAL = TaskFacts("", "all_to_all", shots=16, classes=10, images=160)


def rows() -> list[dict[str, Any]]:
    """Methods, the default one first, then presets."""
    entries = [("2sfs", "method", TWO_STAGE, two_stage())]
    entries += [
        (entry.name, "method", entry.summary, named_recipe(entry.name))
        for entry in published_names().values()
    ]
    entries += [(one.name, "preset", one.summary, one.recipe) for one in PRESETS.values()]
    return [_row(*entry) for entry in entries]


def _row(name: str, kind: str, summary: str, recipe: Recipe) -> dict[str, Any]:
    method = get_method(recipe.stages[0].method)
    whole = kind == "preset" or len(recipe.stages) == 2
    return {
        "name": name,
        "kind": kind,
        "summary": summary,
        "unseen_classes": method.open_vocabulary,
        "first_stage": not whole and method.first_fraction is not None,
        "selects_on": method.selects_on,
        "families": list(method.families),
        "options": _options(recipe),
    }


def describe(name: str) -> dict[str, Any]:
    """A method, a recipe such as 2sfs:lora, or a preset, with its options.

    Raises:
        UsageError: for an unknown name.
    """
    preset = PRESETS.get(name)
    recipe = named_recipe(name) if preset is None else preset.recipe
    return {"name": name, "options": _options(recipe)}


def _options(recipe: Recipe) -> list[dict[str, Any]]:
    """By the names that -o takes; what training adds for both stages is that of the first."""
    stages = plan(recipe, USUAL)
    found = list(options_of(stages[0].config))
    trainings = [training for stage in stages for training in stage.trainings]
    named = [("", option) for option in found]
    if len(stages) == 2:
        named += [("linear.", option) for option in options_of(stages[1].config)]
    if trainings:
        named += [("training.", option) for option in options_of(trainings[0])]
    fields = options_of(two_stage() if len(stages) == 2 else recipe)
    budget = [option for option in fields if option.name != "stages"]
    flags = [("--", option._replace(name=option.name.replace("_", "-"))) for option in budget]
    return [
        {"name": f"{prefix}{option.name}", "default": option.default, "values": option.values}
        for prefix, option in [*named, *(flags if len(stages) == 2 else [])]
    ]


def show(found: list[dict[str, Any]]) -> None:
    """Prints methods and presets."""
    # Narrow headers leave the room to what it does.
    table = Table("method", "what it does", "unseen\nclasses", "first\nstage")
    table.add_column("selects on", max_width=10)
    table.add_column("families", no_wrap=True)
    presets = Table("preset", "what it does")
    for row in found:
        if row["kind"] == "preset":
            presets.add_row(row["name"], row["summary"])
            continue
        table.add_row(
            row["name"],
            row["summary"],
            "yes" if row["unseen_classes"] else "no",
            "yes" if row["first_stage"] else "no",
            row["selects_on"],
            ", ".join(row["families"]),
        )
    console = Console()
    console.print(table)
    console.print(presets)
    print("shotfit list-methods NAME shows the options of one, with defaults and ranges.")


def show_one(found: dict[str, Any]) -> None:
    """Prints the options of one."""
    table = Table()
    # A name that is cut could not be given.
    table.add_column(f"option of {found['name']}", no_wrap=True)
    table.add_column("default", overflow="fold")
    table.add_column("values", overflow="fold")
    for option in found["options"]:
        default = "none" if option["default"] is None else str(option["default"])
        table.add_row(option["name"], default, option["values"])
    Console().print(table)
    print("-o NAME=VALUE sets one; those that begin with -- are flags of fit and bench.")
