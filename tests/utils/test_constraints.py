"""Every setting of every method with every wrong kind of value: an error of ours, or it works."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch

from graphsvx import GraphSVX, explain, methods, runs
from graphsvx.errors import BudgetError, DataError, GraphSVXError, InputError
from graphsvx.estimators import WLR, WLS, GaussianProcess, Lasso
from graphsvx.estimators.bayes import BayesNetwork
from graphsvx.generators import CutEdges, Indirect, Isolate
from graphsvx.generators.replace import ReplaceRows
from graphsvx.masks import (
    All,
    Auto,
    Connected,
    Paired,
    Random,
    Smart,
    SmarterSeparate,
    SmartSeparate,
)
from graphsvx.methods.gradients import IntegratedGradients, Saliency
from graphsvx.methods.surrogates import LIME, SHAP
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked, Range, checked, expected
from graphsvx_lab import zoo
from tests.worlds import pooled, random_graph, random_model

VALUES = [
    None, True, False, -1, 0, 1, 3, 10**30, -(10**30), 10**400, 0.5, 1.5, -0.5, 1e300, math.nan,
    math.inf, -math.inf, 1j, "", "x", "mean", "\x1b[31m", b"x", [], (), {}, [1, 2], (0.5, 1.5),
    [math.nan], {"a": [0]}, {"a": "b"}, {1: 2}, {"a": [True]}, object(), int, len, lambda: None,
    Auto(), Paired, WLS(), torch.tensor(True), torch.tensor(2), torch.tensor([1, 2]),
    torch.tensor(math.nan), np.int64(2), np.float64(0.5), np.float64("nan"), np.bool_(True),
    np.array([1.0, 2.0, 3.0]),
]  # fmt: skip

# As quick as they can be.
METHODS: dict[str, Any] = {
    "GraphSVX": GraphSVX(samples=20),
    "GNNExplainer": methods.GNNExplainer(epochs=2),
    "PGExplainer": methods.PGExplainer(epochs=2),
    "GraphLIME": methods.GraphLIME(),
    "PGMExplainer": methods.PGMExplainer(samples=20),
    "XGNN": methods.XGNN(steps=2, episodes=1, rollouts=0, tries=1, nodes=3),
    "LIME": LIME(samples=20),
    "SHAP": SHAP(samples=20),
    "Greedy": methods.Greedy(rounds=2),
    "Random": methods.Random(),
    "Saliency": Saliency(),
    "IntegratedGradients": IntegratedGradients(steps=2),
}
PARTS: dict[str, tuple[Any, Callable[[Any], GraphSVX]]] = {
    **{
        type(mask).__name__: (mask, lambda part: GraphSVX(samples=20, mask=part))
        for mask in (All(separate=True), Auto(), Connected(), Paired(), Random(), Smart(),
                     SmartSeparate(), SmarterSeparate())
    },
    **{
        type(fit).__name__: (fit, lambda part: GraphSVX(samples=20, mask=Paired(), estimator=part))
        for fit in (GaussianProcess(), WLS(), WLR(), Lasso())
    },
    **{
        type(kind).__name__: (kind, lambda part: GraphSVX(samples=20, players=part))
        for kind in (methods.Features(), methods.NodesAndFeatures(),
                     methods.SubgraphFeatures(), methods.Edges())
    },
    "Nodes": (methods.Nodes(), lambda part: GraphSVX(samples=20, players=part, erase=True)),
    "Budget": (methods.Budget(20, max_samples=40), lambda part: GraphSVX(budget=part)),
}  # fmt: skip
OTHERS = [
    Isolate(), Indirect(), CutEdges(), ReplaceRows(), BayesNetwork(), runs.Local(), runs.Ray(),
    zoo.Settings(),
]  # fmt: skip


# One model and graph for all settings: what is known of them is read once.
NODE_MODEL, GRAPH_MODEL, GRAPH = random_model("gcn", 1), pooled("gcn", "add", 0), random_graph(1)


def changed(settings: Any, name: str) -> Iterator[Any]:
    """The settings with each value for this field that is accepted."""
    for value in VALUES:
        try:
            yield _replaced(settings, name, value)
        except GraphSVXError as error:
            message = str(error)
        else:
            continue
        assert len(message) < 400
        assert "\x1b" not in message


def _replaced(settings: Any, name: str, value: Any) -> Any:
    values = {field.name: getattr(settings, field.name) for field in fields(settings) if field.init}
    return type(settings)(**{**values, name: value})


def asked(method: Any) -> None:
    """Explain with it, a node or a graph: an explanation or an error of ours."""
    graph = isinstance(method, methods.XGNN)
    model = GRAPH_MODEL if graph else NODE_MODEL
    try:
        explanation = explain(
            model, GRAPH, method=method, **({"graph": True} if graph else {"node": 1})
        )
    except GraphSVXError:
        return
    assert isinstance(explanation, Explanation)
    assert not bool(explanation.node_values.isnan().any())


def named(settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [(kind, field.name) for kind, variant in settings.items() for field in fields(variant)]


@pytest.mark.filterwarnings("ignore:Linear regression equation is singular")  # shap, few samples
@pytest.mark.parametrize(("method", "field"), named(METHODS))
def test_a_setting_of_a_method_is_refused_or_works(method: str, field: str) -> None:
    for variant in changed(METHODS[method], field):
        asked(variant)


@pytest.mark.parametrize(("part", "field"), named({name: one for name, (one, _) in PARTS.items()}))
def test_a_setting_of_a_mask_or_regression_is_refused_or_works(part: str, field: str) -> None:
    settings, method = PARTS[part]
    for variant in changed(settings, field):
        asked(method(variant))


@pytest.mark.parametrize("settings", OTHERS, ids=lambda one: type(one).__name__)
def test_a_setting_of_anything_else_is_refused_or_accepted(settings: Any) -> None:
    for field in fields(settings):
        accepted = [getattr(variant, field.name) for variant in changed(settings, field.name)]
        assert not any(isinstance(value, (np.generic, torch.Tensor)) for value in accepted)


EVERY = [*METHODS.values(), *OTHERS, *(settings for settings, _ in PARTS.values())]


@pytest.mark.parametrize("settings", EVERY, ids=lambda one: type(one).__name__)
def test_settings_are_checked_by_their_annotations(settings: Any) -> None:
    assert isinstance(settings, Checked)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"mask": "Paired"}, InputError, r"mask must be a mask, such as .* got 'Paired'"),
        ({"mask": Paired}, InputError, "mask must be a mask"),
        ({"mask": WLS()}, InputError, "mask must be a mask"),
        (
            {"estimator": "wls"},
            InputError,
            "estimator must be an estimator, such as GaussianProcess",
        ),
        ({"estimator": Auto()}, InputError, "estimator must be an estimator"),
        (
            {"feature_share": 5},
            InputError,
            "feature_share must be a number of at least 0 and at most",
        ),
        ({"tolerance": "x"}, InputError, "tolerance must be a number above 0 or None, got 'x'"),
        ({"tolerance": math.nan}, InputError, "got nan"),
        ({"hops": True}, InputError, "hops must be an integer of at least 0 or None, got True"),
        ({"max_samples": -1}, BudgetError, "max_samples must be an integer of at least 2"),
        ({"erase": 1}, InputError, "erase must be False, True or 'rows', got 1"),
        ({"indirect": True}, InputError, "indirect must be False, 'mean' or 'target', got True"),
        ({"features": math.nan}, InputError, "features must be a number of at least 0, 'all'"),
        ({"groups": 5}, InputError, "groups must be a mapping"),
    ],
)
def test_what_was_expected_and_what_came(settings, error, message) -> None:
    with pytest.raises(error, match=message):
        GraphSVX(**settings)


def test_numbers_of_other_kinds_become_plain_ones() -> None:
    method = GraphSVX(samples=np.int64(20), feature_share=torch.tensor(0.5), hops=torch.tensor(2))
    assert method == GraphSVX(samples=20, feature_share=0.5, hops=2)
    numbers = (method.budget.samples, method.budget.feature_share, method.players.hops)
    assert [type(value) for value in numbers] == [int, float, int]
    assert methods.PGExplainer(temperature=[3, 2]).temperature == (3, 2)
    assert hash(methods.XGNN(valences=[1, 2])) == hash(methods.XGNN(valences=(1, 2)))


def test_arguments_are_checked_by_the_same_rules() -> None:
    hint = Annotated[int | None, Range(1, 9, error=BudgetError)]
    assert checked(None, hint, "k") is None
    assert checked(np.int8(9), hint, "k") == 9
    for wrong in (0, 10, 1.0, "1", True, [1]):
        with pytest.raises(BudgetError, match=r"k must be an integer of at least 1 .* or None"):
            checked(wrong, hint, "k")
    assert checked({"a": 1}, dict[str, float], "d") == {"a": 1}
    with pytest.raises(InputError, match="d must be a dictionary with values that are each a"):
        checked({"a": "b"}, dict[str, float], "d")
    assert expected(Literal["a", "b"] | None) == "'a', 'b' or None"
    with pytest.raises(InputError, match=r"got \[0, 1, .*\.\.\.$"):
        checked(list(range(1000)), int, "n")


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    with pytest.raises(InputError, match="got an object of type _Unprintable"):
        GraphSVX(samples=_Unprintable())


def test_errors_of_saved_settings_are_errors_of_data() -> None:
    with pytest.raises(DataError, match="hidden"):
        zoo.Settings.from_json({**zoo.Settings().to_json(), "hidden": -5})
