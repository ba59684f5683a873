"""All masks, generators, estimators and methods of this library pass the public checks."""

from __future__ import annotations

import pytest

import graphsvx
from graphsvx import masks
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.estimators import WLR, WLS, GaussianProcess, Lasso
from graphsvx.generators import CutEdges, Indirect, Isolate, ReplaceRows
from graphsvx.methods import (
    LIME,
    SHAP,
    XGNN,
    GNNExplainer,
    GraphLIME,
    GraphSVX,
    Greedy,
    IntegratedGradients,
    PGExplainer,
    PGMExplainer,
    Random,
    Saliency,
    registry,
)
from graphsvx.testing import check_estimator, check_generator, check_mask, check_method
from graphsvx.testing.laws import random_graph, random_model

MASKS = [
    masks.Auto(), masks.Paired(), masks.Paired(stretch=1), masks.Connected(), masks.Random(),
    masks.Smart(), masks.SmartSeparate(), masks.SmarterSeparate(), masks.SmarterSeparate(order=3),
    masks.SmarterSeparate(random_share=1.0),
]  # fmt: skip
GENERATORS = [
    Isolate(), Isolate(erase=True), Indirect(), Indirect("target"),
    Indirect("target", variant="released"), CutEdges(), ReplaceRows(),
    ReplaceRows("zero"),
]  # fmt: skip
METHODS = [
    GraphSVX(), GraphSVX(samples=30), GraphSVX.paper(), GraphSVX(players="edges"),
    GraphSVX(generator=ReplaceRows()), GNNExplainer(epochs=5), GraphLIME(), Greedy(),
    IntegratedGradients(steps=5), LIME(samples=50), SHAP(samples=50), PGMExplainer(), Random(),
    Saliency(),
]  # fmt: skip


def test_nothing_of_this_library_is_left_out() -> None:
    def names(blocks: list) -> set[str]:
        return {type(block).__name__ for block in blocks}

    def known(kind: str) -> set[str]:
        blocks = registry._KNOWN[kind].items()  # other tests name blocks of their own
        return {name for name, block in blocks if block.__module__.startswith("graphsvx.")}

    assert names([*MASKS, masks.All()]) == known("mask")
    assert names(GENERATORS) == known("generator")
    assert {"GaussianProcess", "WLS", "WLR", "Lasso"} == known("estimator")
    # PGExplainer and XGNN are trained first, each in a test of its own below.
    classes = {registry.find("method", name).__name__ for name in registry.names()}
    assert names(METHODS) | {"PGExplainer", "XGNN"} == classes


@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_masks_pass_the_conformance_checks(mask) -> None:
    check_mask(mask)


@pytest.mark.parametrize("separate", [True, False])
def test_all_coalitions_pass_the_conformance_checks(separate: bool) -> None:
    check_mask(masks.All(separate), keeps_budget=False)


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
def test_generators_pass_the_conformance_checks(generator) -> None:
    check_generator(generator)


@pytest.mark.parametrize("estimator", [GaussianProcess(), WLS()], ids=repr)
def test_estimators_of_shapley_values_pass_the_conformance_checks(estimator) -> None:
    check_estimator(estimator)


@pytest.mark.parametrize("estimator", [WLR(), Lasso(), Lasso(k=2)], ids=repr)
def test_other_estimators_pass_the_conformance_checks(estimator) -> None:
    check_estimator(estimator, shapley=False)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method)[:60])
def test_methods_pass_the_conformance_checks(method) -> None:
    check_method(method)


def test_a_trained_pgexplainer() -> None:
    model, data = random_model(0).float(), random_graph(0, nodes=9)
    data.x = data.x.float()
    check_method(PGExplainer(epochs=2).fit(model, data, nodes=[0, 1, 2]))


def test_xgnn_about_the_model() -> None:
    check_method(XGNN(episodes=2, tries=2))


def test_indirect_is_short_for_its_generator() -> None:
    model, data = random_model(3), random_graph(3, nodes=9)
    short = graphsvx.explain(model, data, node=0, method=GraphSVX(indirect="target"))
    given = graphsvx.explain(model, data, node=0, method=GraphSVX(generator=Indirect("target")))
    assert short.nodes == given.nodes
    assert short.features == given.features
    plain = graphsvx.explain(model, data, node=0)
    assert plain.nodes == graphsvx.explain(
        model, data, node=0, method=GraphSVX(generator=Isolate())
    ).nodes  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"generator": Isolate}, "generator must be a generator"),
        ({"generator": lambda setup, features, nodes: 0}, "generator must be a generator"),
        ({"generator": Isolate(), "indirect": "mean"}, "indirect= is short for"),
        ({"generator": Isolate(), "erase": True}, "erase= is short for"),
        ({"generator": Isolate(), "players": "edges"}, r"such as CutEdges\(\), got Isolate"),
        ({"generator": CutEdges()}, 'use players="edges"'),
    ],
)
def test_generators_that_do_not_fit_are_refused(settings, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        GraphSVX(**settings)


def test_whole_graphs_have_no_indirect_effect() -> None:
    method = GraphSVX(generator=Indirect())
    with pytest.raises(UnsupportedError, match="the indirect effect needs an explained node"):
        graphsvx.explain(random_model(0, True), random_graph(0), graph=True, method=method)
