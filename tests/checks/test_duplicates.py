"""Repeated blocks are found where they are, as long as they are, and nothing else is."""

import duplicates

LINES = [f"value_{n} = {n} + {n}" for n in range(12)]


def written(folder, name, lines):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_block_is_told_as_long_as_it_gets(tmp_path):
    one = written(tmp_path, "one.py", ["import os", *LINES[:10], "end = 1"])
    two = written(tmp_path, "two.py", ["start = 2", "# why", *LINES[:5], "", *LINES[5:10]])
    assert duplicates.duplicates([one, two]) == [[(one, 2, 11), (two, 3, 13)]]


def test_seven_lines_are_no_block_and_text_and_imports_do_not_count(tmp_path):
    imports = [f"import module_{n}" for n in range(9)]
    text = ['"""A text', *(f"of the line {n}" for n in range(9)), '"""']
    one = written(tmp_path, "one.py", [*text, *imports, *LINES[:7], "a = 1"])
    two = written(tmp_path, "two.py", [*text, *imports, *LINES[:7], "b = 2"])
    assert duplicates.duplicates([one, two]) == []


def test_a_block_twice_in_one_file_counts_whatever_its_depth(tmp_path):
    inside = [f"    {line}" for line in LINES[:8]]
    path = written(tmp_path, "one.py", [*LINES[:8], "if value_0:", *inside])
    assert duplicates.duplicates([path]) == [[(path, 1, 8), (path, 10, 17)]]


def test_the_command_names_every_place_of_a_block(tmp_path, capsys):
    written(tmp_path, "src/shotfit/methods/one.py", LINES)
    assert duplicates.main(tmp_path) == 0
    written(tmp_path, "tests/two.py", LINES)
    assert duplicates.main(tmp_path) == 1
    out = capsys.readouterr().out
    assert "methods/one.py:1-12" in out and "tests/two.py:1-12" in out
