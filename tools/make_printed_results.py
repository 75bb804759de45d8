"""Makes `src/shotfit/paper/results.csv`: the paper's printed numbers with their corrections.

    python tools/make_printed_results.py AS_PRINTED.csv

AS_PRINTED.csv is a tidy transcript of the sixteen tables (table, setting, backbone, shots, method,
dataset, metric, value). Values are kept as printed, digit for digit; a cell that contradicts the
rest of its table gets a `correction` and a `reason`. What deviates before the corrections is
printed; what deviates after them ends the script with an error.
"""

import argparse
import csv
import sys
from pathlib import Path

from shotfit.paper import COLUMNS, PrintedCell, check, decimals, mean_of_datasets, read_cells

TARGET = Path(__file__).parent.parent / "src" / "shotfit" / "paper" / "results.csv"

PASTED = "Base and Novel repeat the UCF101 panel; this is the mean of the eleven printed rows"
SMALL_SHOTS = tuple(
    f"b2n_vit{size}_shots{shots}" for size in ("b16", "b32", "l14") for shots in (4, 8)
)

# (tables, backbone, method, dataset, metric), correction (None: the mean of the rows), reason
ERRATA = (
    *(
        ((SMALL_SHOTS, None, method, "average", metric), None, PASTED)
        for method in ("mma", "2sfs_layernorm")
        for metric in ("base", "novel")
    ),
    (
        (("b2n_vitb16_shots4", "b2n_vitb16_shots8"), None, "zero_shot", "caltech101", "hm"),
        "95.40",
        "harmonic mean of 96.84 and 94.00, as in the 16-shot table; 93.73 is CoOp's",
    ),
    (
        (("b2n", "b2nlora"), None, "mma", "ucf101", "novel"),
        "78.53",
        "the printed harmonic mean and the average row both imply 78.53",
    ),
    (
        (("b2n", "b2nlora"), None, "clip_lora", "dtd", "hm"),
        "71.88",
        "harmonic mean of the printed 83.95 and 62.84",
    ),
    (
        (("all2all", "all2alllora"), "ViT-B/32", "mma", "average", "accuracy"),
        "76.6",
        "mean of the printed cells is 76.64",
    ),
)


def corrected(cells: list[PrintedCell]) -> list[PrintedCell]:
    """The cells with every erratum written beside its cell; an erratum without a cell fails."""
    result = list(cells)
    for (tables, backbone, method, dataset, metric), value, reason in ERRATA:
        hits = [
            number
            for number, cell in enumerate(cells)
            if cell.table in tables
            and backbone in (None, cell.backbone)
            and (cell.method, cell.dataset, cell.metric) == (method, dataset, metric)
        ]
        if len(hits) != len(tables):
            sys.exit(f"{method} {dataset} {metric}: {len(hits)} cells for {len(tables)} tables")
        for number in hits:
            cell = cells[number]
            text = value or f"{mean_of_datasets(cells, cell):.{decimals(cell.value)}f}"
            result[number] = cell.with_correction(text, reason)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("as_printed", type=Path)
    cells = read_cells(parser.parse_args().as_printed)
    before = check(cells)
    print(f"{len(cells)} cells; as printed, {len(before)} deviate:")
    print(*before, sep="\n")
    cells = corrected(cells)
    after = check(cells)
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(cell.as_row() for cell in cells)
    print(f"Wrote {TARGET.name} with {sum(bool(c.correction) for c in cells)} corrections.")
    if after:
        sys.exit("\n".join(["Still deviating:", *after]))


if __name__ == "__main__":
    main()
