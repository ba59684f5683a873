"""Masks and budgets: errors against references, and what the pages claim."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np
import pytest
import torch

from graphsvx import GraphSVX
from graphsvx.errors import InputError
from graphsvx.games.base import FunctionGame
from graphsvx.generators import Indirect
from graphsvx.masks import Auto, Paired
from graphsvx.metrics import relative_error
from graphsvx_lab.datasets.catalogue import NODE_SETS
from graphsvx_lab.metrics.measurements import Measurements, Row
from graphsvx_lab.studies import motifs, sampling
from graphsvx_lab.studies.sampling import ALL, MOST, OURS, SMARTER
from graphsvx_lab.studies.variants import OtherRandomNumbers
from tests.records import credit, house
from tests.studies.conftest import answer_of


def test_the_error_is_the_squared_distance_as_a_share_of_the_reference():
    exact = house()
    assert relative_error(exact, exact) == 0
    ids = exact.node_ids.tolist()
    off = replace(exact, node_credit=credit(ids, [0.41, 0.24, 0.12, 0.10, -0.05, 0.004, -0.01]))
    size = sum(v**2 for v in [*exact.nodes.values(), *exact.features.values()])
    assert relative_error(off, exact) == pytest.approx(0.01 / size)
    # Credit that is nowhere has no relative error, and other players are no mistake to average.
    nothing = replace(exact, node_credit=credit([], []), feature_credit=credit([], []))
    assert isnan(relative_error(nothing, nothing))
    with pytest.raises(InputError, match="same players"):
        relative_error(nothing, exact)


def test_a_reference_expects_the_error_of_its_bars_and_others_are_judged_by_it():
    exact = house()
    ids, values = exact.node_ids.tolist(), exact.node_values.tolist()
    unsure = replace(exact, node_credit=credit(ids, values, errors=[0.1] + [0.0] * 6))
    measure = motifs.error_against(sampling.MASK_REFERENCES)
    size = sum(v**2 for v in [*values, *exact.features.values()])
    own = measure(answer_of(None, unsure, 402, method=MOST))
    assert own == {"own error": pytest.approx(0.01 / size)}
    others = {MOST: exact, ALL: unsure}
    assert measure(answer_of(None, exact, 402, method=SMARTER, others=others)) == {"error": 0}
    assert measure(answer_of(None, exact, 402, method=SMARTER)) == {}
    assert measure(answer_of(None, exact, 402, method=sampling.FLOOR, others=others)) == {}


def test_masks_are_judged_by_the_game_that_they_play():
    settings = sampling.mask_methods("ba-community")
    for name, setting in settings.items():
        reference = sampling.MASK_REFERENCES.get(name)
        if reference is not None:
            method, judge = setting.method, settings[reference].method
            assert isinstance(method, GraphSVX)
            assert isinstance(judge, GraphSVX)
            assert method.mask.separate == judge.mask.separate
            # The same game, or the error would be a difference of games.
            assert replace(judge, mask=method.mask, budget=method.budget) == method
    assert [sampling.mask_methods(name)[SMARTER].method.budget.samples for name in NODE_SETS] == [
        400, 800, 1400, 1500,
    ]  # fmt: skip


def test_the_reference_shares_no_luck_and_is_the_same_every_time():
    def rows(mask) -> np.ndarray:
        game = FunctionGame(lambda rows: torch.zeros(len(rows)), 20)
        return mask(game, 200, torch.Generator().manual_seed(0)).rows

    plain, other = rows(Auto()), rows(OtherRandomNumbers())
    assert not np.array_equal(plain, other)
    assert np.array_equal(other, rows(OtherRandomNumbers()))
    assert not OtherRandomNumbers(Paired(), separate=False).separate


def test_a_budget_is_judged_by_a_reference_with_far_more_calls():
    settings = sampling.budgets("ba-shapes")
    most = settings[ALL].method.budget.samples
    judged = [
        setting.method.budget.samples
        for name, setting in settings.items()
        if name.startswith((SMARTER, OURS))
    ]
    assert max(judged) <= most / 2
    assert {f"S = {order}" for order in (1, 2, 3, 4, 5)} <= set(settings)
    theirs = sampling.in_the_papers_game("tree-cycles")
    names = (ALL, *(f"{SMARTER}, {count}" for count in (500, 1500, 3000)))
    assert set(theirs) == {f"{sampling.INDIRECT}{name}" for name in names}
    assert all(s.method.generator == Indirect() for s in theirs.values())
    for name in (*settings, *theirs):
        reference = sampling.BUDGET_REFERENCES.get(name)
        assert (reference is None) == (name == sampling.FLOOR)
        assert reference is None or reference in {**settings, **theirs}


def test_a_change_is_claimed_only_where_its_interval_leaves_no_doubt():
    results = Measurements("budget")
    for seed in range(5):
        for method, level in ((f"{SMARTER}, 1500", 0.9), (f"{SMARTER}, 3000", 0.8), (ALL, 0.9)):
            wobble = 0.05 * (-1) ** seed if method == ALL else 0.01 * seed
            row = Row("tree-cycles", "", seed, method, 511, "paper")
            results.add(row, level + wobble)
    claims = {claim.cells()[0]: claim for claim in sampling.budget.page(results).claims}
    falls = claims["Accuracy falls from 1,500 to 3,000 samples on Tree-Cycles: by"]
    assert (falls.paper, falls.ours, falls.holds) == ("0.07", "0.10", True)
    more = claims["1,500 samples score more than all coalitions, by (Tree-Cycles)"]
    assert more.holds is False
