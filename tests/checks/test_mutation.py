"""The page of survivors says what the results say, and a sample is the same for a seed."""

import mutation

VALUES = {
    "mutants": 100,
    "sample": 8,
    "seed": 1,
    "modules": {
        "averages": {"killed": 2, "survived": 1, "timeout": 1},
        "report.tables": {"killed": 3, "no test": 1},
    },
    "survivors": {
        "shotfit.averages.x_mean__mutmut_1": {"change": "- a\n+ b", "reason": "the same"},
        "shotfit.report.tables.x_row__mutmut_2": {"change": "- c\n+ d", "reason": ""},
    },
}


def test_the_table_counts_what_no_test_noticed():
    page = mutation.page(VALUES)
    assert "| averages | 4 | 3 | 1 | 25.0 % |" in page
    assert "| report.tables | 4 | 3 | 1 | 25.0 % |" in page
    assert "| **all** | 8 | 6 | 2 | 25.0 % |" in page
    assert "- `averages`, the same\n  ```diff\n  - a\n  + b\n  ```" in page
    assert "- `report.tables`, **not looked at yet**" in page
    assert "all of these were tried" in page
    # Wilson's interval of 2 of 8.
    assert "2 survived, 25.0 % (95 % interval 7.1 to 59.1 %)" in page
    assert "only 8 of these" in mutation.page({**VALUES, "sample": 240})


def test_a_sample_is_drawn_by_its_seed():
    names = [f"shotfit.averages.x_mean__mutmut_{n}" for n in range(50)]
    assert mutation.drawn(names, 10, 1) == mutation.drawn(names, 10, 1)
    assert mutation.drawn(names, 10, 1) != mutation.drawn(names, 10, 2)
    assert mutation.drawn(names, None, 1) == mutation.drawn(names, 50, 1) == names
    assert mutation.module_of("shotfit.training.loop.x_train__mutmut_3") == "training.loop"
    assert mutation.module_of("shotfit.saving.xǁFittedǁnames__mutmut_1") == "saving"
