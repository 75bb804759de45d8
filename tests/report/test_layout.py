"""A panel laid out: every text, mark and title of a small one, written by hand."""

import pytest

from shotfit.averages import Estimate
from shotfit.paper import PrintedCell
from shotfit.report.layout import WIDE, Layout, Text, lay_out
from shotfit.report.tables import Cell, Column, Panel, Row


def ours(mean, half_width=None):
    return Estimate(mean, half_width, 1 if half_width is None else 3)


def printed(value, correction=""):
    return PrintedCell("b2n", "", "", 16, "", "", "base", value, correction)


def name(text):
    return Text(text, "name")


BASE = Column("base", "Base")


def test_beside_the_printed_number_stands_ours_and_the_difference():
    rows = (
        Row("coop", (Cell(ours(80.126, 1.5), printed("79.0", "80.0")),)),
        Row("lora", (Cell(ours(80.124), printed("81.30")),)),
        Row("maple", (Cell(None, printed("70.0")),)),
        Row("kgcoop", (Cell(ours(85.0)),)),
    )
    assert lay_out(Panel("Average", (BASE,), rows)) == Layout(
        (("", 1), ("Base", 3)),
        ("Method", "ours", "paper", "Δ"),
        (
            (
                name("CoOp"),
                Text("80.13 ± 1.50", "ours", False, True),
                Text("79.0† (80.0)", "printed", False, True),
                Text("+0.13", "difference"),
            ),
            (
                name("LoRA"),
                Text("80.12", "ours"),
                Text("81.30", "printed", True),
                Text("-1.18", "difference"),
            ),
            (name("MaPLe"), Text(), Text("70.0", "printed"), Text("", "difference")),
            (
                name("KgCoOp"),
                Text("85.00", "ours", True),
                Text("", "printed"),
                Text("", "difference"),
            ),
        ),
        (True, True, True, True),
    )


def test_what_is_equal_as_shown_is_marked_alike_and_one_alone_is_not():
    def marks(*means, digits=1, column=BASE):
        rows = tuple(Row(f"m{n}", (Cell(ours(mean)),)) for n, mean in enumerate(means))
        body = lay_out(Panel("", (column,), rows, digits)).body
        return [1 if text.best else 2 if text.second else 0 for _, text in body]

    assert marks(80.04, 79.96, 70.0, 60.0) == [1, 1, 2, 0]
    assert marks(80.04, 79.96, 70.0, 60.0, digits=2) == [1, 2, 0, 0]
    assert marks(60.0, 70.0) == [2, 1]
    assert marks(60.0) == [0]
    assert marks(60.0, 70.0, column=Column("seconds", "Seconds", "s")) == [0, 0]


def test_without_a_printed_number_ours_stand_alone_and_units_are_told():
    columns = (Column("base", "Base"), Column("n", "Parameters", "count"), Column("t", "s", "s"))
    cells = (Cell(ours(50.0)), Cell(ours(61440.0)), Cell(ours(12.34)))
    empty = (Cell(ours(float("nan"))), Cell(), Cell())
    plain = lay_out(Panel("", columns, (Row("coop", cells), Row("lora", empty)), 1))
    assert plain.groups == () and plain.header == ("Method", "Base", "Parameters", "s")
    # A number that is not one takes part in no ranking, so that nothing is marked.
    assert plain.body == (
        (name("CoOp"), Text("50.0"), Text("61,440"), Text("12.3")),
        (name("LoRA"), Text(), Text(), Text()),
    )
    told = lay_out(Panel("", columns, (Row("coop", cells, "shots"), Row("lora", empty)), 1))
    assert told.header == ("Method", "Selects on", "Base", "Parameters", "s")
    assert [row[1] for row in told.body] == [Text("shots", "part"), Text("", "part")]
    assert told.starts == (True, True)


@pytest.mark.parametrize("columns", [WIDE, WIDE + 1])
def test_a_wide_panel_has_printed_numbers_below_ours(columns):
    titles = tuple(Column(f"d{n}", f"d{n}") for n in range(columns))
    full = Row("coop", tuple(Cell(ours(70.0), printed("70.5")) for _ in titles))
    alone = Row("lora", tuple(Cell(None, printed("60.0")) for _ in titles))
    laid = lay_out(Panel("", titles, (full, alone), 1))
    if columns == WIDE:
        assert len(laid.header) == 1 + 3 * WIDE and laid.starts == (True, True)
        return
    assert laid.groups == ()
    assert laid.header == ("Method", "", *(column.title for column in titles))
    assert laid.starts == (True, False, False, True)
    assert [row[:2] for row in laid.body] == [
        (name("CoOp"), Text("ours", "part")),
        (name(""), Text("paper", "part")),
        (name(""), Text("Δ", "part")),
        (name("LoRA"), Text("paper", "part")),
    ]
    assert [row[2].content for row in laid.body] == ["70.0", "70.5", "-0.5", "60.0"]
    assert [row[2].kind for row in laid.body] == ["ours", "printed", "difference", "printed"]


@pytest.mark.parametrize(
    ("mean", "shown"), [(70.004, "0.00"), (69.996, "0.00"), (70.006, "+0.01"), (69.99, "-0.01")]
)
def test_a_difference_of_nothing_has_no_sign(mean, shown):
    rows = (Row("coop", (Cell(ours(mean), printed("70.00")),)),)
    assert lay_out(Panel("", (BASE,), rows)).body[0][3].content == shown
