"""Sweeps and gains: harmonic means of averages, by value, as in every other table."""

import dataclasses

import pytest
from synthetic_records import record

from shotfit.averages import t_quantile
from shotfit.records.gain import Gain
from shotfit.report.ablation import gain_points, sweep_rows


def measured(base, novel, seed=1, dataset="animals", m=300):
    # The harmonic mean that a run itself reports must not be averaged; a wrong one shows if it is.
    metrics = {"base": base, "novel": novel, "harmonic_mean": 1.0}
    return record(dataset=dataset, seed=seed, m=m, metrics=metrics)


def swept(*runs):
    return [((float(run.experiment["recipe"]["iters_per_shot"]),), run.id) for run in runs]


def by_id(*runs):
    return {run.id: run for run in runs}


def test_a_sweep_takes_the_harmonic_mean_of_averages():
    runs = [measured(90, 10, seed=1), measured(10, 90, seed=2), measured(60, 40, m=100)]
    rows = sweep_rows(swept(*runs), by_id(*runs))
    assert [point for point, _ in rows] == [(100,), (300,)]
    one, two = rows[0][1], rows[1][1]
    assert {name: estimate.mean for name, estimate in one.items()} == pytest.approx(
        {"base": 60, "novel": 40, "harmonic mean": 48}
    )
    assert one["base"].half_width is None and one["base"].runs == 1
    assert {name: estimate.mean for name, estimate in two.items()} == pytest.approx(
        {"base": 50, "novel": 50, "harmonic mean": 50}
    )
    # Of 90 and 10: the standard error is 40, and Student's t has one degree of freedom.
    assert two["base"].half_width == pytest.approx(40 * t_quantile(1))
    # The seeds' own harmonic means are both 18.
    assert two["harmonic mean"].half_width == pytest.approx(0)


def test_a_sweep_averages_datasets_after_seeds_and_only_those_run_at_every_value():
    runs = [
        measured(80, 40, dataset="a"),
        measured(40, 80, dataset="b"),
        measured(20, 20, dataset="a", m=100),
        measured(60, 60, dataset="b", m=100),
        measured(100, 100, dataset="c", m=100),
    ]
    rows = dict(sweep_rows(swept(*runs), by_id(*runs)))
    assert rows[300.0,]["harmonic mean"].mean == pytest.approx(60)
    assert rows[100.0,]["base"].mean == pytest.approx(40)


def test_a_sweep_has_what_was_finished():
    first, second = measured(60, 40), measured(50, 50, m=100)
    failed = dataclasses.replace(second, status="failed", metrics={})
    rows = sweep_rows(swept(first, second), by_id(first, failed))
    assert [point for point, _ in rows] == [(300,)]
    assert sweep_rows(swept(first), {}) == []
    plain = record(setting="all_to_all", metrics={"all": 75.0})
    ((_, row),) = sweep_rows(swept(plain), by_id(plain))
    assert {name: estimate.mean for name, estimate in row.items()} == {"accuracy": 75.0}


def test_a_gain_is_between_harmonic_means_of_averages():
    gains = [
        Gain(measured(90, 30, seed=1), {"base": 30.0, "novel": 60.0, "harmonic_mean": 99.0}),
        Gain(measured(50, 70, seed=2), {"base": 50.0, "novel": 40.0, "harmonic_mean": 99.0}),
    ]
    after, before = 2 * 70 * 50 / 120, 2 * 40 * 50 / 90
    assert gain_points(gains, "harmonic_mean") == pytest.approx(after - before)
    assert gain_points(gains, "base") == pytest.approx(30)
    assert gain_points(gains[:1], "novel") == pytest.approx(-30)
