"""The study of reduced photographs: pairs share their shots, the table is of the records."""

import reduction


def record(seed, reduced, full_size):
    options = {"shots": 16, "iters_per_shot": 20, "test": 200}
    values = {"reduced": {"accuracy": reduced}, "full_size": {"accuracy": full_size}}
    return {"seed": seed, "options": options, **values}


def test_the_table_says_what_the_records_say():
    text = reduction.table([record(1, 61.0, 60.0), record(2, 63.0, 60.0), record(3, 62.0, 60.0)])
    assert "3 pairs" in text and "k=16, M=20, 600 test images" in text
    assert "| reduced photographs | 62.00 |" in text
    assert "| full size | 60.00 |" in text
    # Student's t at two degrees of freedom, 4.303, times 1 / sqrt(3).
    assert "| +2.00 ± 2.48 |" in text


def test_textiles_are_drawn_once_and_never_tested_on():
    dataset = reduction.textiles(1, 4, 6)
    train = {example.key for example in dataset.train}
    assert (len(train), len(dataset.test)) == (12, 18)
    assert not train & {example.key for example in dataset.test}
    assert dataset.train == reduction.textiles(1, 4, 6).train
