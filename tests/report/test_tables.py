"""Records to tables: averages, what may stand together, the printed side, every format."""

import csv
import dataclasses
import io
import math

import pytest
import typer.testing
from synthetic_records import B16, measured, record, suite

from shotfit.apps.cli import app
from shotfit.averages import Estimate, estimate, t_quantile
from shotfit.config import digest, to_dict
from shotfit.errors import DataError, UsageError
from shotfit.paper import paper_table
from shotfit.records import write_record
from shotfit.report import FORMATS, paper_report, render, runs_report, suite_report
from shotfit.report.labels import method_label
from shotfit.report.protocol import (
    method_name,
    require_one_protocol,
    run_of,
    runs_of,
    select_records,
)
from shotfit.report.render import to_terminal
from shotfit.report.suite import protocol_groups, rows_of, suite_runs
from shotfit.report.tables import seed_means

TABLE = paper_table("b2n")


def published(method, dataset, seed=1, **options):
    options = {"source": "coop", "shots": 16, "backbone": B16, **options}
    return record(method, dataset, seed, **options)


def panel(report, title):
    return next(panel for panel in report.panels if panel.title.startswith(title))


def cell(report, title, method, column):
    here = panel(report, title)
    row = next(row for row in here.rows if row.method == method)
    return row.cells[[c.key for c in here.columns].index(column)]


def scores(base, novel):
    mean = 2 * base * novel / (base + novel)
    return {"base": base, "novel": novel, "harmonic_mean": mean}


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (30, 2.042)]
)
def test_t_quantiles_are_the_tabulated_ones(freedom, expected):
    assert t_quantile(freedom) == pytest.approx(expected, abs=5e-4)


def test_estimate_of_three_and_of_one():
    three = estimate([80.0, 82.0, 84.0])
    assert (three.mean, three.runs) == (82.0, 3)
    assert three.half_width == pytest.approx(4.303 * 2 / math.sqrt(3), abs=1e-3)
    assert estimate([80.0]) == Estimate(80.0, None, 1)


def test_harmonic_mean_is_that_of_averages():
    runs = runs_of(
        [
            record(dataset="animals", seed=1, metrics=scores(90, 30)),
            record(dataset="animals", seed=2, metrics=scores(50, 70)),
            record(dataset="fruit", seed=1, metrics=scores(100, 10)),
            record(dataset="fruit", seed=2, metrics=scores(80, 50)),
        ]
    )
    animals = seed_means([r for r in runs if r.dataset == "animals"], "harmonic_mean", ["animals"])
    assert animals is not None and animals.mean == pytest.approx(2 * 70 * 50 / 120)
    both = seed_means(runs, "harmonic_mean", ["animals", "fruit"])
    assert both is not None and both.mean == pytest.approx(2 * 80 * 40 / 120)
    base = seed_means(runs, "base", ["animals", "fruit"])
    assert base is not None
    assert base.half_width == pytest.approx(estimate([95, 65]).half_width)


def test_averages_need_every_dataset_and_cells_never_run_are_empty():
    report = paper_report(TABLE, [published("coop", d) for d in TABLE.datasets[:-1]])
    assert cell(report, "imagenet", "coop", "base").ours is not None
    assert cell(report, "Average", "coop", "base").ours is None
    assert cell(report, "ucf101", "coop", "base").ours is None
    assert cell(report, "imagenet", "maple", "base").ours is None
    assert cell(report, "imagenet", "maple", "base").printed.value == "76.66"
    full = paper_report(TABLE, [published("coop", d) for d in TABLE.datasets])
    assert cell(full, "Average", "coop", "hm").ours.half_width is None


def test_difference_is_to_the_corrected_value():
    report = paper_report(TABLE, [published("mma", "ucf101", metrics=scores(86, 79.53))])
    assert cell(report, "ucf101", "mma", "novel").difference == pytest.approx(1.0)
    assert "80.03† (78.53)" in render(report, "markdown")


def test_other_protocols_get_rows_of_their_own():
    records = [
        published("2sfs_layernorm", "dtd", metrics=scores(80, 60)),
        published("2sfs_layernorm", "dtd", m=100, metrics=scores(70, 50)),
        published("2sfs_layernorm", "dtd", training={"batch_size": 1}, metrics=scores(60, 40)),
        published("coop", "dtd", budget="shared", metrics=scores(50, 30)),
        published("2sfs_layernorm", "dtd", shots=8),
        published("2sfs_layernorm", "dtd", backbone="openai/clip-vit-base-patch32"),
    ]
    report = paper_report(TABLE, records)
    assert cell(report, "dtd", "2sfs_layernorm", "base").ours.mean == 80
    assert cell(report, "dtd", "2sfs_layernorm[M=100]", "base").ours.mean == 70
    assert cell(report, "dtd", "2sfs_layernorm[batch_size=1]", "base").ours.mean == 60
    assert cell(report, "dtd", "coop[budget=shared]", "base").ours.mean == 50
    assert cell(report, "dtd", "coop", "base").ours is None
    assert any("Not the printed protocol" in note for note in report.notes)


def test_zero_shot_as_printed_has_specific_prompts():
    records = [
        published("zero_shot", "dtd", template="specific", metrics=scores(53, 60)),
        published("zero_shot", "dtd", metrics=scores(50, 55)),
    ]
    report = paper_report(TABLE, records)
    assert cell(report, "dtd", "zero_shot", "base").ours.mean == 53
    assert cell(report, "dtd", "zero_shot[template=generic]", "base").ours.mean == 50


def test_the_sweep_has_rows_by_m():
    records = [published("2sfs_layernorm", "imagenet", m=m) for m in (100, 300, 200)]
    report = paper_report(paper_table("sweep-on-M"), [*records, published("coop", "imagenet")])
    rows = [row.method for row in report.panels[0].rows]
    assert rows == [f"2sfs_layernorm[M={m}]" for m in (100, 300, 500, 200)]
    assert cell(report, "imagenet", "2sfs_layernorm[M=500]", "base").ours is None
    assert cell(report, "imagenet", "2sfs_layernorm[M=300]", "base").ours is not None


def test_a_mix_is_refused_and_says_what_differs():
    runs = [run_of(record(m=300)), run_of(record(m=100, shots=8))]
    with pytest.raises(UsageError, match=r"M is 100 and default; shots is 4 and 8"):
        require_one_protocol(runs)
    with pytest.raises(UsageError, match="cannot share a table: source is coop and huggingface"):
        paper_report(
            TABLE, [published("mma", "dtd"), published("coop", "dtd", source="huggingface")]
        )
    with pytest.raises(DataError, match="different images"):
        paper_report(TABLE, [published("mma", "dtd"), published("coop", "dtd", split="other")])


def test_where_keeps_and_refuses():
    records = [record(m=300), record(m=100)]
    assert [
        r.experiment["recipe"]["iters_per_shot"] for r in select_records(records, ["M=100"])
    ] == [100]
    assert len(select_records(records, ["M=default"])) == 1
    with pytest.raises(UsageError, match="Did you mean 'shots'"):
        select_records(records, ["shoots=4"])
    with pytest.raises(UsageError, match="FACT=VALUE"):
        select_records(records, ["shots"])


def test_the_suite_says_what_its_average_hm_is():
    def notes(setting):
        return " ".join(suite_report(suite(["coop"], setting=setting)).notes)

    assert "of the averaged base and novel" in notes("base_to_novel")
    assert "HM" not in notes("all_to_all")


@pytest.mark.parametrize(
    ("word", "rows"),
    [
        ("method=2sfs", {"2sfs_layernorm"}),
        ("method=2sfs:coop", {"2sfs_coop"}),
        ("method=2sfs_coop", {"2sfs_coop"}),
        ("method=clip-adapter", {"clip_adapter"}),
        ("setting=base-to-novel", {"2sfs_layernorm", "2sfs_coop", "clip_adapter"}),
        ("budget=published", {"2sfs_layernorm", "2sfs_coop", "clip_adapter"}),
        ("precision=fp32", {"2sfs_layernorm", "2sfs_coop", "clip_adapter"}),
        # A method of its own budget is a baseline whatever M is.
        ("M=300", {"2sfs_layernorm", "2sfs_coop", "clip_adapter"}),
    ],
)
def test_where_takes_the_words_of_fit_and_bench(word, rows):
    records = suite(["2sfs_layernorm", "2sfs_coop", "clip_adapter"])
    assert {run.row for run in runs_of(select_records(records, [word]))} == rows


def test_where_takes_hub_ids():
    records = [published("coop", "dtd")]
    assert select_records(records, ["backbone=openai/clip-vit-base-patch16"]) == records
    assert select_records(records, ["backbone=ViT-B/16"]) == records


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed=9"], "Unknown seed in --where '9'.*Known: 1"),
        (["dataset=nosuch"], "Unknown dataset in --where.*Known: animals, fruit"),
        (["method=2sfs:lora"], "Unknown method.*'2sfs:lora'.*Known: 2sfs_coop, coop"),
        (["M=100"], "Known: 300, default"),
        (["seed=1", "seed=2"], "seed twice"),
        (["method=2sfs_coop", "seed=4"], "No record has method=2sfs_coop and seed=4 together"),
    ],
)
def test_where_says_what_there_is(words, message):
    with pytest.raises(UsageError, match=message):
        select_records(suite(["2sfs_coop", "coop"]) + suite(["coop"], seeds=(4,)), words)


def test_a_budget_leaves_out_no_baseline_that_has_none():
    records = suite(["zero_shot", "coop", "2sfs_lora"], budget="shared", m=100)
    records += suite(["zero_shot", "coop", "2sfs_lora"])
    records = list({r.id: r for r in records}.values())

    def rows(*words):
        return {run.row for run in runs_of(select_records(records, words))}

    assert rows("M=300") == {"zero_shot", "coop", "2sfs_lora"}
    shared = "[budget=shared, M=100]"
    assert rows("M=100") == {"zero_shot", "coop", f"coop{shared}", f"2sfs_lora{shared}"}
    assert rows("budget=shared") == {"zero_shot", f"coop{shared}", f"2sfs_lora{shared}"}


def test_records_from_lists_share_a_table_wherever_the_lists_lie():
    def listed(dataset, fewshot):
        made = published("coop", dataset)
        experiment = {**made.experiment, "fewshot": fewshot}
        return dataclasses.replace(made, id=digest(experiment), experiment=experiment)

    records = [listed("dtd", "dtd/split_fewshot"), listed("caltech101", "caltech-101/lists")]
    report = paper_report(TABLE, records)
    assert cell(report, "caltech101", "coop", "base").ours.runs == 1
    assert select_records(records, ["fewshot=lists"]) == records
    with pytest.raises(UsageError, match="fewshot is default and lists"):
        paper_report(TABLE, [*records, published("coop", "eurosat")])


@pytest.mark.parametrize(
    ("table", "claim"),
    [
        ("b2n-pl", "CoOp on EuroSAT (68.69 to 65.66) and IVLP on DTD (66.82 to 65.32)"),
        ("all2all", "MaPLe's 82.1 (Food101) and 91.7 (Pets) are the best, where 81.9 and 91.5"),
        ("all2alllora", "MaPLe's 82.1 (Food101) is the best, where 81.9 is bold"),
    ],
)
def test_claims_and_marks_that_the_numbers_do_not_bear_out_are_told(table, claim):
    assert claim in " ".join(paper_report(paper_table(table), []).notes)


def test_suite_keeps_protocols_apart():
    records = (
        suite(["zero_shot", "coop", "2sfs_lora"], budget="shared", m=100)
        + suite(["zero_shot", "coop"])
        + suite(["coop"], setting="all_to_all")
        + [published("coop", "dtd")]
    )
    records = list({r.id: r for r in records}.values())
    report = suite_report(records)
    titles = [panel.title for panel in report.panels]
    assert len(titles) == 5
    assert sum("shared budget, M=100" in title for title in titles) == 2
    rows = [row.method for row in report.panels[titles.index(titles[-2])].rows]
    assert rows[0] == "zero_shot"
    shared = next(p for p in report.panels if "Average" in p.title and "shared" in p.title)
    assert [row.method for row in shared.rows] == ["zero_shot", "coop", "2sfs_lora"]
    assert [c.title for c in shared.columns][:4] == ["Base", "Novel", "HM", "Joint"]
    assert measured(shared.rows[1].cells[4]).mean == 63488
    everything = next(p for p in report.panels if p.title.startswith("Accuracy"))
    keys = ["animals", "fruit", "tools", "average", "parameters", "seconds"]
    assert [c.key for c in everything.columns] == keys


def test_memory_has_a_column_where_all_records_tell_it():
    told = [
        dataclasses.replace(one, cost={**one.cost, "peak_memory_bytes": 1.5e9 + 1e6 * number})
        for number, one in enumerate(suite(["coop"], setting="all_to_all"))
    ]
    (panel,) = suite_report(told).panels
    assert panel.columns[-1].title == "Memory MB"
    assert measured(panel.rows[0].cells[-1]).mean == 1.5e9 + 1e6 * (len(told) - 1) / 2
    text = render(suite_report(told), "markdown")
    assert f"| {1500 + (len(told) - 1) / 2:,.0f} |" in text and "Memory: the most" in text
    other = record("lora", setting="all_to_all")
    assert "Memory" not in render(suite_report([*told, other]), "markdown")


def test_m_is_in_the_row_only_where_it_differs():
    runs = suite_runs([record(m=100), record(m=300, seed=2), record("coop")])
    (group,) = protocol_groups(runs)
    assert list(rows_of(group)) == ["coop", "2sfs_layernorm[M=100]", "2sfs_layernorm"]
    assert method_label("2sfs_lora[M=100]") == "2SFS (LoRA) [M=100]"


def test_the_suite_says_on_which_images_a_method_selects():
    runs = suite(["lp_pp", "2sfs_layernorm", "coop"])
    averages, by_task = suite_report(runs).panels
    assert {row.method: row.selects_on for row in averages.rows} == {
        "coop": "nothing",
        "2sfs_layernorm": "nothing",
        "lp_pp": "validation shots",
    }
    assert not any(row.selects_on for row in by_task.rows)
    text = render(suite_report(runs), "markdown")
    assert "| Method | Selects on | Base |" in text
    assert "| LP++ | validation shots |" in text


def test_failed_runs_are_no_numbers():
    import dataclasses

    failed = dataclasses.replace(record(), status="failed", metrics={}, cost={})
    assert suite_report([failed]).panels == ()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["b2n", "all2all", "suite"])
def test_every_format_shows_the_same_numbers(form, name):
    if name == "suite":
        report = suite_report(suite(["zero_shot", "2sfs_lora"], setting="all_to_all"))
    else:
        table = paper_table(name)
        values = {"all": 83.123456, **scores(83.123456, 70)}
        report = paper_report(
            table,
            [
                published("2sfs_layernorm", d, s, setting=table.setting, metrics=values)
                for d in table.datasets
                for s in (1, 2)
            ],
        )
    text = render(report, form)
    names = {"csv": "2sfs_l"}.get(form, "2SFS (L")
    assert names in text
    if name == "suite":
        return
    shown = {"csv": "83.123456", "latex": r"$\pm$ 0.0"}.get(form, "83.1")
    assert shown in text
    printed = {"b2n": "85.55", "all2all": "92.4"}[name]
    assert printed in text


def test_csv_is_tidy_and_html_stands_alone():
    report = paper_report(TABLE, [published("coop", "dtd", metrics=scores(80, 60))])
    rows = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    assert len(rows) == len(TABLE.cells)
    row = next(r for r in rows if (r["panel"], r["method"], r["column"]) == ("dtd", "coop", "base"))
    assert (row["ours"], row["runs"], row["printed"]) == ("80", "1", "79.44")
    assert float(row["difference"]) == pytest.approx(0.56)
    page = render(report, "html")
    assert "http" not in page
    assert "<script" not in page
    hostile = suite_report([record("2sfs_layernorm", "<b>&")])
    assert "<b>&" not in render(hostile, "html")


def test_latex_escapes_and_balances():
    text = render(paper_report(TABLE, []), "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 12
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert "lp_pp" not in render(paper_report(paper_table("all2all"), []), "latex")


def test_terminal_tables_fit():
    report = paper_report(paper_table("all2all"), [])
    for width in (60, 90, 200):
        assert max(map(len, to_terminal(report, width).splitlines())) <= width


def test_command(tmp_path):
    runner = typer.testing.CliRunner()
    for r in suite(["zero_shot", "2sfs_lora"]):
        write_record(tmp_path, r)
    out = tmp_path / "made" / "suite.html"
    args = ["table", "suite", "--results", str(tmp_path), "--format", "html", "--out", str(out)]
    assert runner.invoke(app, args).exit_code == 0
    assert "2SFS (LoRA)" in out.read_text()
    assert "b2n-pl" in runner.invoke(app, ["table", "list"]).stdout
    for args, error in (
        (["table", "suit"], "Did you mean 'suite'"),
        (["table", "b2n", "--format", "markdwn"], "Did you mean 'markdown'"),
        (["table", "b2n", "--results", str(tmp_path / "none")], "no folder"),
    ):
        assert error in str(runner.invoke(app, args).exception)


def test_reproduce_plans_the_grid():
    from shotfit.bench.cost import device_hours
    from shotfit.bench.reproduction import recipe_of, reproduction

    plan = reproduction(paper_table("sweep-on-M"), seeds=(1, 2))
    runs = plan.experiments()
    assert sorted({run.recipe.iters_per_shot for run in runs}) == [100, 300, 500]
    assert len(runs) == 6
    assert "--iters-per-shot 500" in plan.grids[2].command
    # 16 shots: 4800 iterations for M=300, then 50,000 test images in batches of 32.
    middle = plan.grids[1].experiments()[:1]
    assert device_hours(middle, {"ViT-B/16": 3600}) == pytest.approx(4800 + 50000 / 32 / 3)
    everything = reproduction(TABLE)
    zero = [run for run in everything.experiments() if run.data.get("template") == "specific"]
    assert len(zero) == 11
    missing = [name for name in TABLE.methods if recipe_of(name) is None]
    assert list(everything.missing) == missing
    assert recipe_of("2sfs_layernorm") == "2sfs:layernorm"
    runs = reproduction(paper_table("all2all")).experiments()
    every = {method_name(to_dict(run.recipe)) for run in runs}
    assert "tip_adapter_f" in every


def test_the_printed_commands_are_the_runs(shotfit, monkeypatch, tmp_path):
    from shotfit.bench.grid import expand
    from shotfit.bench.reproduction import reproduction
    from shotfit.bench.runner import GridStep
    from shotfit.recipe import Overrides

    def lists(command):
        words, found = command.split()[2:], {}
        for word in words:
            if word.startswith("-"):
                found[word] = []
            else:
                found[list(found)[-1]].append(word)
        return found

    for name in ("b2n", "sweep-on-M"):
        for grid in reproduction(paper_table(name), seeds=(1, 2)).grids:
            said = lists(grid.command)
            fields = {"iters_per_shot": int(said.get("--iters-per-shot", ["300"])[0])}
            runs = expand(
                said["--methods"],
                said["--datasets"],
                backbones=said["--backbones"],
                shots=[int(shots) for shots in said["--shots"]],
                seeds=[int(seed) for seed in said["--seeds"]],
                settings=said["--setting"],
                overrides=Overrides(fields, dict(one.split("=") for one in said.get("-o", []))),
                template=said.get("--template", [None])[0],
            )
            assert {run.id for run in runs} == {run.id for run in grid.experiments()}
    asked = []

    def pretended(experiments, folder, **options):
        asked.extend(experiments)
        yield GridStep(len(asked), 0, len(asked) - 1, 1, 0, 1.0, 7200.0, record("coop", "dtd"))

    monkeypatch.setattr("shotfit.bench.runner.run_all", pretended)
    code, out, _ = shotfit(
        *["reproduce", "sweep-on-M", "--seeds", "1", "2", "--results", tmp_path, "--run"]
    )
    assert len(asked) == 6
    assert code == 1 and "1 failed of 6, 2.0 h left" in out


def test_tasks_under_shifts_have_tables_of_their_own():
    plain, under_shifts = suite(["coop"]), suite(["coop"], tasks=("animals@noise", "fruit@blur"))
    both = [*plain, *under_shifts]
    assert suite_report(both) == suite_report(plain)
    report = suite_report(both, shifted=True)
    assert report.id == "shifted-suite"
    assert [column.title for column in report.panels[1].columns[:2]] == [
        "animals@noise",
        "fruit@blur",
    ]
    assert "--datasets shifted-suite" in suite_report(plain, shifted=True).notes[0]


def test_runs_of_any_source_have_tables_that_say_what_they_share():
    records = suite(["coop"]) + [published("coop", "dtd")] + suite(["lora"], shots=None)
    report = runs_report(records)
    titles = " / ".join(panel.title for panel in report.panels)
    assert "base-to-novel · 4 shots · iconclip · published budget" in titles
    assert "16 shots · ViT-B/16 · published budget · source=coop" in titles
    assert "base-to-novel · all images · iconclip" in titles
    assert runs_report([]).notes == ("No finished record; `shotfit bench` makes them.",)


def test_shifted_tasks_never_share_a_table_with_others():
    records = suite(["coop"], tasks=["animals", "animals@noise"])
    by_task = [p for p in runs_report(records).panels if p.title.startswith("HM by task")]
    columns = [[column.key for column in panel.columns] for panel in by_task]
    assert columns == [["animals", "average"], ["animals@noise", "average"]]
    assert "tasks=shifted" in by_task[1].title


def test_missing_runs_and_seeds_are_told_in_every_format():
    records = suite(["coop", "zero_shot"]) + suite(["lora"], tasks=["animals"], seeds=(1, 2))
    records = [r for r in records if r.experiment["seed"] == 1 or "zero" not in str(r.experiment)]
    report = suite_report(records)
    assert cell(report, "HM by task", "lora", "fruit").note == "not run"
    assert cell(report, "HM by task", "lora", "animals").note == "2 of 3 seeds"
    assert cell(report, "HM by task", "lora", "average").note == "1 of 3 tasks"
    assert cell(report, "Average", "lora", "base").note == "1 of 3 tasks"
    assert cell(report, "Average", "lora", "base").ours is None
    # One seed of what no seed changes is all there is.
    assert cell(report, "HM by task", "zero_shot", "fruit").note == ""
    assert not any(c.note for p in report.panels for c in p.rows[1].cells)
    for form in FORMATS:
        text = render(report, form)
        assert "2 of 3 seeds" in text and "not run" in text, form
    notes = [row["note"] for row in csv.DictReader(io.StringIO(render(report, "csv")))]
    assert notes.count("not run") == 2
    assert "told in place of a number" in " ".join(report.notes)
    assert "told in place" not in " ".join(suite_report(suite(["coop"])).notes)


def test_a_table_of_the_paper_holds_methods_of_different_precision():
    half = {"precision": "fp16"}
    records = [
        published("coop", "dtd", metrics=scores(70, 60), training=half),
        published("prograd", "dtd", metrics=scores(71, 61)),
    ]
    report = paper_report(TABLE, records)
    assert cell(report, "dtd", "coop", "base").ours.mean == 70
    assert cell(report, "dtd", "prograd", "base").ours.mean == 71
    assert "Ours trained in fp16 (coop) and fp32 (prograd); printed: fp16." in report.notes
    both = [*records, published("coop", "dtd", metrics=scores(60, 50))]
    report = paper_report(TABLE, both)
    assert cell(report, "dtd", "coop", "base").ours.mean == 70
    assert cell(report, "dtd", "coop[precision=fp32]", "base").ours.mean == 60
    assert any("coop[precision=fp32]" in note for note in report.notes)
