"""Intervals over seeds, and paired tests with Holm's correction."""

from __future__ import annotations

from itertools import product
from math import isnan

import numpy as np
import pytest

from graphsvx_lab.metrics.measurements import (
    MIN_SEEDS,
    Estimate,
    number,
    paired_tests,
    share_significant,
)  # fmt: skip


def test_the_interval_holds_the_truth_in_95_percent_of_cases():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        low, high = Estimate(tuple(rng.normal(0.7, 0.2, 5))).interval or (0, 0)
        held += low <= 0.7 <= high
    assert 0.935 <= held / 2000 <= 0.965


def test_few_seeds_show_their_values_and_no_interval():
    few = Estimate((0.1, 0.25, 1.0))
    assert MIN_SEEDS == 4
    assert few.interval is None
    assert few.text() == "0.10, 0.25, 1.00"
    assert few.band == pytest.approx((0.45, 0.1, 1.0))
    assert Estimate(()).text() == "-"
    assert isnan(Estimate(()).mean)


def test_the_interval_is_student_s():
    # Mean .5, sample deviation .1, t(0.975, 3) = 3.1824.
    four = Estimate((0.4, 0.4, 0.6, 0.6))
    half = 3.1824 * np.std([0.4, 0.4, 0.6, 0.6], ddof=1) / 2
    assert four.interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-4)
    assert four.text() == f"0.50 ± {half:.2f}"
    assert Estimate((0.5,) * 4).text() == "0.50"


def test_small_figures_are_not_shown_as_zero():
    assert [number(x, 2) for x in (0.004, -0.004, 0.0, 0.006)] == [
        "4.0e-03", "-4.0e-03", "0.00", "0.01",
    ]  # fmt: skip


def wilcoxon_by_enumeration(differences: list[float]) -> float:
    """Two-sided p: how often random signs give a rank sum as far from its mean."""
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    mean = ranks.sum() / 2
    observed = abs(ranks[np.array(differences) > 0].sum() - mean)
    sums = [
        abs(sum(r for r, up in zip(ranks, signs, strict=True) if up) - mean)
        for signs in product((False, True), repeat=len(ranks))
    ]
    return sum(s >= observed - 1e-9 for s in sums) / len(sums)


def test_p_values_are_those_of_all_signs_times_holm_s_factor():
    rng = np.random.default_rng(1)
    groups = {
        "far": rng.normal(1.0, 0.5, 9),
        "near": rng.normal(0.2, 1.0, 9),
        "same": rng.normal(0, 1, 9),
    }  # fmt: skip
    plain = {name: wilcoxon_by_enumeration(list(values)) for name, values in groups.items()}
    # Two seeds: what is tested is all questions together.
    tests = paired_tests({name: [v[:4].tolist(), v[4:].tolist()] for name, v in groups.items()})
    order = sorted(plain, key=lambda name: plain[name])
    expected, largest = {}, 0.0
    for factor, name in zip((3, 2, 1), order, strict=True):
        largest = expected[name] = max(largest, min(1.0, factor * plain[name]))
    for name, test in tests.items():
        assert test.p == pytest.approx(expected[name])
        assert test.difference == pytest.approx(groups[name].mean())
        assert (test.pairs, test.seeds) == (9, 2)
    assert tests["far"].ahead


def test_equal_methods_are_not_told_apart_and_methods_without_pairs_do_not_count():
    tests = paired_tests({"same": [[0.0, 0.0]], "none": [], "less": [[-0.1] * 12]})
    assert tests["same"].p == 1
    assert tests["none"].text() == "-"
    assert not tests["less"].ahead
    # Holm's factor counts the two methods that were compared.
    assert tests["less"].p == pytest.approx(2 * paired_tests({"less": [[-0.1] * 12]})["less"].p)


def test_means_away_from_0_are_significant_and_others_are_not():
    clear, none = [1.0, 1.01, 0.99, 1.0], [1.0, -1.0, 0.5, -0.5]
    assert share_significant([none, none]) == 0
    assert share_significant([clear, none]) == 0.5
    assert share_significant([[0.0] * 4, [2.0] * 4]) == 0.5  # no spread: 0, or never 0
