"""A check on the terminal, and as a file: a page with pictures, or JSON."""

import json
from pathlib import Path

from shotfit.apps.check.diagnosis import CheckReport, Diagnosis, ShownImage
from shotfit.data.thumbnails import thumbnail
from shotfit.errors import DataError
from shotfit.report.check_page import CheckFacts, PageDiagnosis, Picture, check_page
from shotfit.system.files import write_atomically
from shotfit.system.terminal import printable

SHOWN = 12
"""Images, or pairs of them, that the page shows of one diagnosis."""
SIDE = 96
"""Pixels of a small picture's side: hundreds of them are mailed in one page."""


def show_report(report: CheckReport) -> None:
    """Prints what was found, the warnings first, so that errors stand last."""
    sizes = ", ".join(f"{count:,} {part}" for part, count in report.images.items() if count)
    print(printable(f"{report.name}: {len(report.classes)} classes; {sizes} images"))
    for line in _model_lines(report):
        print(printable(line))
    for text in report.texts("warning"):
        print(printable(f"note: {text}"))
    for text in report.texts("error"):
        print(printable(f"problem: {text}"))


def write_report(report: CheckReport, out: Path) -> None:
    """Writes a page, or JSON, by the ending of the file's name."""
    if out.suffix.lower() == ".json":
        text = json.dumps(report.plain(), indent=2, ensure_ascii=False) + "\n"
    else:
        text = check_page(_facts(report))
    write_atomically(out, text)


def _model_lines(report: CheckReport) -> list[str]:
    facts = report.model
    if not facts.get("images"):
        return []
    share = 100 * facts["right_by_name_alone"] / facts["images"]
    of = "" if facts["images"] == facts["of"] else f" of {facts['of']:,}"
    return [
        f"{facts['name']} tells {share:.0f} % of {facts['images']:,}{of} training images by the "
        "names alone"
    ]


def _facts(report: CheckReport) -> CheckFacts:
    counts = [(f"{part} images", f"{count:,}") for part, count in report.images.items() if count]
    asked = [("model", line) for line in _model_lines(report)]
    return CheckFacts(
        title=f"{report.name}: {len(report.classes)} classes",
        about=[*counts, ("classes", str(len(report.classes))), *asked],
        errors=[_diagnosis(one) for one in report.diagnoses if one.level == "error"],
        warnings=[_diagnosis(one) for one in report.diagnoses if one.level == "warning"],
        classes=report.classes,
    )


def _diagnosis(found: Diagnosis) -> PageDiagnosis:
    return PageDiagnosis(
        kind=found.kind,
        text=found.text,
        groups=[[_picture(one) for one in group] for group in found.groups[:SHOWN]],
        more=max(0, len(found.groups) - SHOWN),
    )


def _picture(one: ShownImage) -> Picture:
    try:
        address = thumbnail(one.image, SIDE)
    except DataError:
        address = ""
    return Picture(address, one.key, one.name, one.note)
