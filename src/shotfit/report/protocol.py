"""What a record was run under, so that numbers of different protocols never meet unnoticed.

A run's facts are split in two: what a whole table shares (setting, shots, backbone, source, ...)
and what may set one row apart from another of the same method (budget, M, template, any option
that is not the published one). A row is named after its method and whatever sets it apart:
`2sfs_layernorm[M=100]`.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shotfit.config import digest
from shotfit.errors import DataError, UsageError, unknown_name
from shotfit.methods import PublishedName, list_methods, method_key, published_name
from shotfit.paper import BACKBONES
from shotfit.records import Record

TABLE_FACTS = ("setting", "shots", "backbone", "revision", "source")
"""What every number of a table shares; other options of the dataset source come on top."""

AS_PUBLISHED = {"budget": "published", "precision": "fp32"}
"""Facts that a run states only where they differ from these."""

GENERIC_TEMPLATES = ("generic", "a photo of a {}.")
DEFAULT_ITERS_PER_SHOT = 300


@dataclass(frozen=True)
class Run:
    """A finished record as tables need it."""

    id: str
    method: str
    """The paper's name: `coop`, `2sfs_lora` (LoRA as a first stage), `tip_adapter_f`."""
    dataset: str
    seed: int
    table: tuple[tuple[str, Any], ...]
    """Facts that a whole table shares."""
    variant: tuple[tuple[str, Any], ...]
    """What differs from the method's published protocol."""
    metrics: Mapping[str, float]
    classes: Mapping[tuple[str, str], tuple[int, int]]
    """Images that were answered right, and images, by metric and class, as the record tells."""
    iters_per_shot: int | None
    """M, None where the budget does not depend on it."""
    trained: bool
    """Whether it took any training step: a budget means nothing to the others."""
    parameters: int
    """Trained values, over all stages."""
    seconds: float
    """Of training, in wall-clock time."""
    processor_seconds: float | None
    """Of training, summed over the processors; None in records without it."""
    peak_memory_bytes: float | None
    """The most that was held; None in records without it."""
    split_hash: str

    @property
    def row(self) -> str:
        """The name of its row: the method, and what sets it apart."""
        return row_name(self.method, dict(self.variant))

    def fact(self, name: str) -> Any:
        """A fact by name, None when there is none."""
        return {**dict(self.table), **dict(self.variant)}.get(name)


def row_name(method: str, variant: Mapping[str, Any]) -> str:
    """`method[key=value, ...]`, the method alone when it is as published."""
    inside = ", ".join(f"{key}={value}" for key, value in variant.items())
    return f"{method}[{inside}]" if inside else method


def run_of(record: Record) -> Run:
    """The run that a finished record describes.

    Raises:
        DataError: when the record's experiment lacks a part.
    """
    try:
        experiment, recipe = record.experiment, record.experiment["recipe"]
        data = dict(experiment["data"])
        data.pop("name", None)
        template, words = data.pop("template", None), data.pop("words", None)
        trained = record.cost.get("iterations", 1) > 0
        return Run(
            id=record.id,
            method=method_name(recipe),
            dataset=record.dataset,
            seed=int(experiment["seed"]),
            table=(*_table_facts(experiment), *sorted((k, str(v)) for k, v in data.items())),
            variant=tuple(_variant(recipe, template, words, trained).items()),
            metrics=record.metrics,
            classes=_class_counts(record.classes),
            iters_per_shot=_iters_per_shot(recipe) if trained else None,
            trained=trained,
            parameters=sum(record.trainable_parameters),
            seconds=record.cost.get("seconds", math.nan),
            processor_seconds=record.cost.get("processor_seconds"),
            peak_memory_bytes=record.cost.get("peak_memory_bytes"),
            split_hash=record.split_hash,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The experiment of record {record.id} is incomplete: {type(error).__name__} {error}"
        ) from error


def _class_counts(rows: Iterable[Sequence[str | int]]) -> dict[tuple[str, str], tuple[int, int]]:
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for metric, name, right, images in rows:
        # Classes may share a name.
        before = counts.get((str(metric), str(name)), (0, 0))
        counts[str(metric), str(name)] = before[0] + int(right), before[1] + int(images)
    return {key: count for key, count in counts.items() if count[1]}


def runs_of(records: Iterable[Record]) -> tuple[Run, ...]:
    """The finished runs among records.

    Raises:
        DataError: for a record whose experiment is incomplete.
    """
    return tuple(run_of(record) for record in records if record.status == "done")


def method_name(recipe: Mapping[str, Any]) -> str:
    """The paper's name for what a recipe trains."""
    stages = recipe["stages"]
    first = _published_name(stages[0]).name
    return first if len(stages) == 1 else f"2sfs_{first}"


def _published_name(stage: Mapping[str, Any]) -> PublishedName:
    """What the method of a stage was published as; a record may be of a method not known here."""
    method, options = stage["method"].replace("-", "_"), stage.get("options", {})
    if method in list_methods():
        return published_name(method, options)
    return PublishedName(method, method, method, method, {}, "nothing")


def require_one_protocol(runs: Sequence[Run]) -> None:
    """Refuses to treat runs of different protocols as repetitions of one.

    Raises:
        UsageError: naming every fact that differs, with its values.
        DataError: when runs of one dataset and seed saw different images.
    """
    _require_equal(
        [dict((*run.table, *run.variant)) for run in runs],
        "These records follow different protocols",
    )
    require_same_images(runs)


def require_one_table(runs: Sequence[Run]) -> None:
    """Refuses to put runs side by side that differ in more than method, variant and seed.

    Raises:
        UsageError: naming every fact that differs, with its values.
        DataError: when runs of one dataset and seed saw different images.
    """
    _require_equal([dict(run.table) for run in runs], "These records cannot share a table")
    require_same_images(runs)


def with_precision_in_rows(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs for a table whose methods need not share a precision, as those of the paper do not.

    Where one method has several, fp16 keeps the plain row, as printed (else fp32), and the others
    get rows of their own.
    """
    found: dict[str, set[str]] = {}
    for run in runs:
        found.setdefault(run.row, set()).add(precision_of(run))
    changed = []
    for run in runs:
        plain = min(found[run.row], key=lambda one: (one != "fp16", one != "fp32", one))
        table = tuple((name, value) for name, value in run.table if name != "precision")
        own = () if precision_of(run) == plain else (("precision", precision_of(run)),)
        changed.append(dataclasses.replace(run, table=table, variant=(*run.variant, *own)))
    return tuple(changed)


def precision_of(run: Run) -> str:
    """The arithmetic that a run trained in: "fp32", "bf16", "fp16"."""
    return str(run.fact("precision") or AS_PUBLISHED["precision"])


def require_same_images(runs: Sequence[Run]) -> None:
    """Refuses to compare runs that saw other images of one dataset and seed.

    Raises:
        DataError: naming the first two records that disagree.
    """
    seen: dict[tuple[str, int], Run] = {}
    for run in runs:
        other = seen.setdefault((run.dataset, run.seed), run)
        if other.split_hash != run.split_hash:
            raise DataError(
                f"Records {other.id} ({other.row}) and {run.id} ({run.row}) of {run.dataset}, seed "
                f"{run.seed}, were run on different images: they cannot share a table. Remove the "
                "one whose split is outdated and run it again."
            )


def _require_equal(facts: Sequence[Mapping[str, Any]], problem: str) -> None:
    told = []
    for name in sorted({key for values in facts for key in values}):
        found = sorted({str(values.get(name, "default")) for values in facts})
        if len(found) > 1:
            told.append(f"{name} is {' and '.join(found)}")
    if told:
        raise UsageError(f"{problem}: {'; '.join(told)}. Keep one with --where.")


def select(runs: Iterable[Run], where: Mapping[str, str]) -> tuple[Run, ...]:
    """The runs whose facts are as `where` says; a fact that is as published is "default".

    A run whose budget does not depend on M is a baseline of every M, and one that trains nothing a
    baseline of every budget.

    Methods and settings may be written as `shotfit fit` takes them, backbones by their hub ids.

    Raises:
        UsageError: for a fact or a value that no run has, with those there are; for values that no
            run has together.
    """
    runs = tuple(runs)
    if not runs:
        return ()
    known = {"method", "dataset", "seed", "M", *AS_PUBLISHED}
    known |= {name for run in runs for name, _ in (*run.table, *run.variant)}
    kept = runs
    for name, value in where.items():
        if name not in known:
            raise unknown_name("fact in --where", name, known)
        spelled = _spelled(name, value)
        found = {text for run in runs for text in _values(run, name)}
        if spelled not in found:
            raise unknown_name(f"{name} in --where", value, found)
        kept = tuple(run for run in kept if spelled in _values(run, name) or _any(run, name))
    if not kept:
        together = " and ".join(f"{name}={value}" for name, value in where.items())
        raise UsageError(f"No record has {together} together; leave one out of --where.")
    return kept


def _spelled(name: str, value: str) -> str:
    """A value as runs have it, from the words of `shotfit fit` and `shotfit bench`."""
    if name == "backbone":
        return BACKBONES.get(value, value)
    if name == "setting":
        return value.replace("-", "_")
    return spelled_method(value) if name == "method" else value


def spelled_method(word: str) -> str:
    """A method as runs have it, from the words of `shotfit bench`: "2sfs:lora" is `2sfs_lora`."""
    kind, _, first = word.partition(":")
    if kind.lower() == "2sfs":
        return f"2sfs_{method_key(first or 'layernorm')}"
    return method_key(word)


def _any(run: Run, name: str) -> bool:
    """Whether a fact means nothing to a run, so that no value of it can leave the run out."""
    if name == "M":
        return run.iters_per_shot is None
    return name == "budget" and not run.trained


def _values(run: Run, name: str) -> tuple[str, ...]:
    """What a fact of a run may be called: what is as published, "default" and by its value."""
    if name in ("method", "dataset", "seed"):
        return (str(getattr(run, name)),)
    value = run.fact(name)
    if value is not None:
        return (str(value),)
    published = run.iters_per_shot if name == "M" else AS_PUBLISHED.get(name)
    return ("default",) if published is None else ("default", str(published))


def _table_facts(experiment: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    facts: dict[str, Any] = {name: experiment.get(name) for name in TABLE_FACTS}
    facts["backbone"] = BACKBONES.get(facts["backbone"], facts["backbone"])
    if facts["revision"] is None:
        del facts["revision"]
    stages = experiment["recipe"]["stages"]
    precisions = {stage.get("training", {}).get("precision", "fp32") for stage in stages}
    if experiment.get("fewshot"):
        # Not where they lie: what they list is in the hash of the split.
        facts["fewshot"] = "lists"
    for name in ("imbalance", "wrong_labels"):
        if name in experiment:
            facts[name] = experiment[name]
    if experiment.get("transfer"):
        facts["transfer"] = " ".join(experiment["transfer"])
    if "@" in str(experiment["data"].get("name", "")):
        facts["tasks"] = "shifted"
    if precisions != {"fp32"}:
        facts["precision"] = " then ".join(sorted(precisions))
    return tuple(facts.items())


def _iters_per_shot(recipe: Mapping[str, Any]) -> int | None:
    budgeted = len(recipe["stages"]) > 1 or recipe["budget"] == "shared"
    return recipe["iters_per_shot"] if budgeted else None


def _variant(
    recipe: Mapping[str, Any], template: str | None, words: Mapping[str, Any] | None, trained: bool
) -> dict[str, Any]:
    """Everything that is not as published. What a recipe does not use cannot set it apart."""
    stages = recipe["stages"]
    variant: dict[str, Any] = {}
    if template is not None and template not in GENERIC_TEMPLATES:
        variant["template"] = template
    if words is not None:
        # Six digits tell two sets of as many templates apart.
        count = len(words["templates"])
        variant["words"] = f"{count} templates {digest(words, 6)}"
    if trained:
        if recipe["budget"] != "published":
            variant["budget"] = recipe["budget"]
        if _iters_per_shot(recipe) not in (None, DEFAULT_ITERS_PER_SHOT):
            variant["M"] = recipe["iters_per_shot"]
        if len(stages) > 1 and recipe["first_fraction"] is not None:
            variant["alpha"] = recipe["first_fraction"]
    for number, stage in enumerate(stages):
        where = "" if number == 0 else f"{stage['method']}."
        # A form shows in the name, precision in the table.
        hidden = {"precision", *_published_name(stage).options}
        for key, value in {**stage.get("options", {}), **stage.get("training", {})}.items():
            if key not in hidden:
                variant[f"{where}{key}"] = value if isinstance(value, int | str) else repr(value)
    return variant


def select_records(records: Sequence[Record], where: Sequence[str]) -> list[Record]:
    """The finished records whose facts are as "FACT=VALUE" texts say.

    Raises:
        UsageError: for a text without "=", a fact given twice, and as `select`.
    """
    wanted: dict[str, str] = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--where takes FACT=VALUE, such as M=300; got {text!r}.")
        if name in wanted:
            raise UsageError(f"--where has {name} twice: a record has one, so give one.")
        wanted[name] = value
    kept = {run.id for run in select(runs_of(records), wanted)}
    return [record for record in records if record.id in kept]
