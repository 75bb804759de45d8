"""What is run with other versions, and where continuous integration runs it."""

import re
import tomllib
from pathlib import Path

import pytest
import versions
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ACTIONS = {"actions/checkout", "actions/setup-python"}


JOBS = {
    f"{path.stem}-{name}": job
    for path in WORKFLOWS
    for name, job in yaml.safe_load(path.read_text())["jobs"].items()
}


def rows(job):
    """The values of each run of a job, by their names in `${{ matrix.NAME }}`."""
    return job.get("strategy", {}).get("matrix", {}).get("include", [{}])


def filled(text, row):
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: row[found[1]], text)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_each_step_is_an_action_or_a_command_that_there_is(job):
    targets = re.findall(r"^([a-z-]+(?: [a-z-]+)*):", (ROOT / "Makefile").read_text(), re.M)
    targets = {target for line in targets for target in line.split()}
    for row in rows(job):
        commands = []
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                action, _, version = step["uses"].partition("@")
                assert action in ACTIONS and re.fullmatch(r"v\d+", version)
            else:
                commands.append(filled(step["run"], row).split())
        assert commands
        for program, *words in commands:
            if program == "make":
                assert set(words) <= targets
            else:
                assert program == "bash" and all((ROOT / word).is_file() for word in words)
    assert job["timeout-minutes"] <= 90


def test_both_ends_of_versions_and_of_python_are_run():
    found = set()
    for job in JOBS.values():
        setup = next(step for step in job["steps"] if "setup-python" in step.get("uses", ""))
        for row in rows(job):
            python = filled(setup["with"]["python-version"], row)
            found.add((python, row.get("versions", "pinned")))
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert {(oldest, "pinned"), (oldest, "oldest"), (oldest, "newest")} <= found
    newest = max((python for python, _ in found), key=lambda text: tuple(map(int, text.split("."))))
    assert newest != oldest and (newest, "newest") in found


def test_lowest_versions_are_allowed_and_none_below():
    found = versions.bounds()
    assert found.keys() == {Requirement(text).name for text in PROJECT["dependencies"]}
    for text in PROJECT["dependencies"]:
        allowed = Requirement(text)
        assert allowed.specifier.contains(found[allowed.name])
        assert not allowed.specifier.contains(f"{found[allowed.name]}.dev0", prereleases=True)


def test_what_pytest_says_is_counted():
    said = "..F\n1 failed, 1234 passed, 5 skipped, 2 errors in 61.20s (0:01:01)\n"
    found = versions.outcome(said, {"torch": "2.6.0"})
    assert found.pop("system") and found.pop("versions") == {"torch": "2.6.0"}
    assert found == {"failed": 1, "passed": 1234, "skipped": 5, "error": 2}
