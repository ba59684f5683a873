"""An explanation in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphsvx.errors import InputError
from graphsvx.results.certificate import Certificate
from graphsvx.results.describe import _points
from tests import records


def test_three_plain_sentences_for_everyone():
    assert records.house().describe() == (
        'For node 402, the model says "house roof" with 97 %. '
        'Without its neighbours it would give "house roof" 26 %. '
        "Node 400 (+0.310) and node 401 (+0.240) account for 61 % of all credit."
    )


def test_with_all_classes_it_says_what_the_model_would_say_instead():
    assert 'Without its neighbours it would say "base" with 44 %' in records.house_all().describe()


def test_without_neighbours_means_base_plus_the_node_s_own_features():
    e = records.house()
    alone = e.base + float(e.feature_values.sum())
    assert f"{100 * alone:.0f} %" in e.describe().split(". ")[1]


def test_a_class_that_is_not_predicted_is_not_called_the_prediction():
    words = records.features_only().describe()
    assert 'the model gives "house roof" 39 %' in words
    assert "says" not in words


def test_the_strongest_opposing_player_is_named():
    words = records.features_only().describe()
    assert "feature 9 speaks most against it (−0.110)" in words
    assert "these are estimates" in words


def test_exact_credit_is_not_called_an_estimate():
    assert "estimate" not in records.house().describe()


def test_an_estimate_that_could_be_chance_is_called_that():
    explanation = records.features_only()
    wide = replace(
        explanation.feature_credit, errors=torch.full_like(explanation.feature_credit.errors, 0.2)
    )
    words = replace(explanation, feature_credit=wide).describe()
    assert "no player can be told from chance" in words
    assert "feature 3 " not in words
    errors = torch.zeros_like(explanation.feature_credit.errors)
    errors[0, 0] = 10.0
    one_wide = replace(explanation.feature_credit, errors=errors)
    estimated = replace(explanation, feature_credit=one_wide)
    assert f"feature {int(explanation.feature_ids[0])} " not in estimated.describe()
    assert f"{int(explanation.feature_ids[0])}: " not in repr(estimated).partition("features")[2]
    account = next(
        line for line in estimated.describe("expert").splitlines() if line.startswith("Features")
    )
    assert f"feature {int(explanation.feature_ids[0])} " not in account


def test_many_players_are_described_by_group():
    explanation = records.crowd()
    rings = explanation.by_hop()
    words = explanation.describe()
    assert f"the {len(rings[0].members)} nodes 1 hop away add" in words
    assert "players may be chance" not in words or "of 299 players" in words


def test_only_negative_credit_is_described_as_against():
    explanation = records.house()
    e = replace(
        explanation,
        node_credit=records.credit([400, 401], [-0.2, -0.1]),
        feature_credit=records.credit([0], [0.0]),
        predictions=explanation.bases - 0.3,
    )
    words = e.describe()
    assert "Node 400 (−0.200) accounts for 67 % of all credit, all of it against" in words
    assert "speaks most against" not in words


def test_a_contrast_is_described_as_a_difference():
    words = records.house_all().contrast(1, 2).describe()
    assert 'gives "house roof" 102 percentage points more than "house middle"' in words
    assert "the difference would be +7 points" in words


def test_a_regression_has_a_value_and_no_percent_of_a_class():
    words = records.regression().describe()
    assert words.startswith("For node 402, the model's value is 0.970.")
    assert "Without its neighbours it would be 0.256." in words
    assert "class" not in words


def test_the_logit_scale_is_not_described_as_a_probability():
    words = replace(records.house(), scale="logit").describe()
    assert 'the model\'s score for "house roof" is 0.970 (logit)' in words
    assert "97 %" not in words


def test_a_graph_has_no_neighbours():
    words = records.molecule().describe()
    assert words.startswith('For this graph, the model says "mutagenic" with 88 %.')
    assert 'With all its nodes switched off it would give "mutagenic" 40 %.' in words
    assert "neighbours" not in words


def test_an_explanation_without_players_is_described():
    words = records.empty().describe()
    assert 'says "class 0" with 60 %' in words
    assert "nothing to share out" in words


def test_importances_that_do_not_add_up_are_not_shares():
    words = records.importances().describe()
    assert "According to GNNExplainer, what matters most are node 400 and node 401." in words
    assert "account" not in words
    assert "Without" not in words


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (0.9999, "more than 99 %"),
        (0.0001, "less than 1 %"),
        (-1e-9, "less than 1 %"),
        (1.0, "100 %"),
    ],
)
def test_no_percentage_is_rounded_to_certainty(score, words):
    explanation = replace(
        records.empty(), predictions=torch.tensor([score]), bases=torch.tensor([score])
    )
    assert words in explanation.describe()


def test_the_complete_account_has_every_number_and_the_certificate():
    e = records.features_only()
    words = e.describe(audience="expert")
    assert "feature 9 -0.11 ± 0.03" in words
    assert "1 within two standard errors of 0" in words
    assert "prediction 0.391, base 0.211" in words
    assert e.certificate.line() in words
    assert e.meaning in words
    assert "weighted R² 0.9800" in words


def test_the_complete_account_tells_exact_from_estimated_and_unknown():
    assert "node 400 +0.31 ± 0" in records.house().describe("expert")
    unknown = records.importances().describe("expert")
    assert "node 400 +0.9," in unknown
    assert "does not add up" in unknown


def test_the_complete_account_of_a_contrast_says_what_its_errors_are():
    assert "upper bounds" in records.house_all().contrast(1, 2).describe("expert")


def test_a_joint_game_does_not_claim_to_know_the_isolated_node():
    explanation = records.house()
    joint = Certificate((records.game("joint", 9),), 0.0, 0, 3)
    assert "Without its neighbours" not in replace(explanation, certificate=joint).describe()


def test_an_unknown_audience_is_an_error_that_says_so():
    with pytest.raises(InputError, match="'everyone' or 'expert', got 'child'"):
        records.house().describe("child")


@pytest.mark.parametrize(
    ("difference", "words"), [(7e-4, "0"), (-0.004, "0"), (0.126, "+13"), (-0.5, "−50")]
)
def test_differences_of_probabilities_are_whole_points(difference, words):
    assert _points(difference) == words
