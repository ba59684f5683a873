"""Each public check fails on a block that breaks its law, and names the law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest
import torch

from graphsvx.core.field import Perturbations
from graphsvx.core.players import Players
from graphsvx.errors import BudgetError, UnsupportedError
from graphsvx.estimators import WLS
from graphsvx.generators import CutEdges, Indirect, Isolate, ReplaceRows
from graphsvx.masks import Masks, Paired, Random
from graphsvx.methods import Nodes, Saliency
from graphsvx.testing import (
    check_estimator,
    check_generator,
    check_mask,
    check_method,
    check_players,
)

# --- masks ----------------------------------------------------------------------------------


class Changed:
    """Random rows, with one thing changed."""

    separate = True

    def __init__(self, change) -> None:
        self.change = change

    def __call__(self, game, budget, rng):
        return self.change(Random()(game, budget, rng), game)


def weighted(weight):
    return lambda masks, game: replace(masks, weights=np.full(len(masks.rows), weight))


class Spends:
    separate = True

    def __call__(self, game, budget, rng):
        return Random()(game, budget + 3, rng)


class Unseeded:
    separate = True

    def __call__(self, game, budget, rng):
        return Random()(game, budget, torch.Generator().manual_seed(np.random.randint(1 << 30)))


class Counting:
    """Rows that depend on how often it was called."""

    separate, calls = True, 0

    def __call__(self, game, budget, rng):
        self.calls += 1
        return Random()(game, budget, torch.Generator().manual_seed(self.calls))


class OneOfEachPair:
    separate = True

    def __call__(self, game, budget, rng):
        masks = Paired()(game, budget, rng)
        rows = masks.rows.copy()
        if rows.shape[1] > 2:
            rows[1::2] = rows[::2]
        return replace(masks, rows=rows, states=game.states(rows), exact=False)


class Refuses:
    separate = True

    def __call__(self, game, budget, rng):
        raise BudgetError("no")


def with_the_full_row(masks, game):
    rows = np.concatenate([masks.rows, np.ones((1, game.players), dtype=bool)])
    return Masks(rows, game.states(rows), np.ones(len(rows)))


@pytest.mark.parametrize(
    ("mask", "law"),
    [
        (lambda game, budget, rng: None, "`separate` is True or False"),
        (Changed(lambda masks, game: None), "returns a graphsvx.masks.Masks"),
        (Changed(lambda masks, game: replace(masks, rows=masks.rows * 1.0)), "booleans"),
        (Changed(lambda masks, game: replace(masks, rows=masks.rows[:, 1:])), r"\[rows, players\]"),
        (Changed(with_the_full_row), "the empty and the full coalition are left out"),
        (Changed(lambda masks, game: replace(masks, states=masks.states[:0])), "a state for each"),
        (Changed(lambda masks, game: replace(masks, states=masks.states * 0)), "game.states"),
        (Changed(lambda masks, game: replace(masks, weights=np.ones(0))), "a weight for each row"),
        (Changed(weighted(np.nan)), "weights are finite"),
        (Changed(weighted(-1.0)), "not negative"),
        (Changed(weighted(0.0)), "some weight is positive"),
        (Changed(lambda masks, game: replace(masks, exact=True)), "`exact` rows give the Shapley"),
        (Spends(), "the budget is kept"),
        (Unseeded(), "not from the global one of numpy"),
        (Counting(), "the same seed gives the same rows"),
        (OneOfEachPair(), "rows 2i and 2i \\+ 1 are complements"),
        (Refuses(), "all were refused"),
    ],
)
def test_wrong_masks_are_rejected_with_the_broken_law(mask, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_mask(mask)


# --- estimators -----------------------------------------------------------------------------


def fitted(change):
    def estimator(masks, values, empty, full):
        return change(WLS()(masks, values, empty, full))

    return estimator


def overwriting(masks, values, empty, full):
    fit = WLS()(masks, values, empty, full)
    values *= 2
    return fit


def moved(fit, by: float):
    """Credit moved from the last player to the first: still efficient."""
    values = fit.values.clone()
    values[:, 0] += by
    values[:, -1] -= by
    return replace(fit, values=values)


def equal_shares(masks, values, empty, full):
    fit = WLS()(masks, values, empty, full)
    return replace(fit, values=fit.values.mean(1, keepdim=True).expand_as(fit.values).clone())


def additive_only_on_all(masks, values, empty, full):
    fit = WLS()(masks, values, empty, full)
    return fit if masks.exact else equal_shares(masks, values, empty, full)


@pytest.mark.parametrize(
    ("estimator", "law"),
    [
        (fitted(lambda fit: fit.values), "returns a graphsvx.estimators.Fit"),
        (fitted(lambda fit: replace(fit, values=fit.values.float())), "values is a float64"),
        (fitted(lambda fit: replace(fit, errors=fit.errors[:, :0])), "errors is a float64"),
        (fitted(lambda fit: replace(fit, r2=fit.r2 * np.nan)), "r2 are finite"),
        (fitted(lambda fit: replace(fit, errors=fit.errors - 1)), "errors are finite and not neg"),
        (fitted(lambda fit: replace(fit, base=fit.base + 0.01)), "efficiency"),
        (overwriting, "arguments are left as they were"),
        (fitted(lambda fit: moved(fit, float(np.random.default_rng().random()))), "same bits"),
        (fitted(lambda fit: moved(fit, 0.1)), "the values are the Shapley values"),
        (equal_shares, "the values are the Shapley values"),
        (fitted(lambda fit: replace(fit, errors=fit.errors.nan_to_num() + 1)), "errors are 0"),
        (additive_only_on_all, "an additive game"),
    ],
)
def test_wrong_estimators_are_rejected_with_the_broken_law(estimator, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_estimator(estimator)


# --- generators -----------------------------------------------------------------------------


@dataclass(frozen=True)
class NoPrepare:
    def __call__(self, setup, features_on, nodes_on):
        return Isolate()(setup, features_on, nodes_on)


class CallsItself(Isolate):
    """Says that features stay, and erases them."""

    def __call__(self, setup, features_on, nodes_on):
        return Isolate(erase=True)(setup, features_on, nodes_on)


class SaysItBlocks(Indirect):
    blocks_paths = True


class SaysByMask(ReplaceRows):
    """Replaced rows depend on how many nodes are on."""

    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        table, size = setup.feature_table, setup.field.size
        shifted = [table + int(count) for count in nodes_on.sum(1)]
        own = size * (1 + np.arange(len(nodes_on)))[:, None] + np.arange(size)
        rows = np.where(done.feature_rows() >= size, own, done.feature_rows())
        return replace(done, feature_row=rows, feature_table=torch.cat([table, *shifted]))


class AlwaysCuts(Isolate):
    """Not even the coalition of all players gives the graph."""

    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        cut = np.zeros((len(nodes_on), len(setup.field.edges)), dtype=bool)
        cut[:, 0] = True
        return replace(done, removed_edges=cut)


class ByBatch(CutEdges):
    """Cuts what the first coalition of the batch cuts too, except for the full coalition."""

    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        cut = done.removed_edges | (done.removed_edges[:1] & ~nodes_on.all(1)[:, None])
        return replace(done, removed_edges=cut)


CALLS = count()


class Tosses(ReplaceRows):
    feature_rows = "any"

    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        table = torch.cat([done.feature_table[:-1], done.feature_table[-1:] + next(CALLS)])
        return replace(done, feature_table=table)


class CutsByFeatures(Isolate):
    """Edges go with features."""

    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        cut = np.zeros((len(nodes_on), len(setup.field.edges)), dtype=bool)
        cut[~features_on.all(1)] = True
        return replace(done, removed_edges=cut)


class Narrow(Isolate):
    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        return replace(done, active=done.active[:, 1:])


class OtherTable(Isolate):
    def __call__(self, setup, features_on, nodes_on):
        done = super().__call__(setup, features_on, nodes_on)
        return Perturbations(done.active, done.feature_row, done.feature_table.flip(0))


@pytest.mark.parametrize(
    ("generator", "law"),
    [
        (NoPrepare(), "prepare"),
        (type("Odd", (Isolate,), {"feature_rows": "sometimes"})(), "feature_rows is one of"),
        (Narrow(), "active is boolean"),
        (OtherTable(), "starts with the features of the field"),
        (AlwaysCuts(), "all players gives the graph as it is"),
        (Tosses(), "the same coalitions give the same"),
        (ByBatch(), "does not depend on the other coalitions"),
        (CutsByFeatures(), "do not depend on features"),
        (CallsItself(), 'feature_rows = "own"'),
        (SaysByMask(), 'feature_rows = "by_mask"'),
        (SaysItBlocks(), "blocks_paths = True"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_wrong_generators_are_rejected_with_the_broken_law(generator, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_generator(generator)


# --- players --------------------------------------------------------------------------------


class Drawn(Nodes):
    """Other players each time."""

    def setup(self, query, evaluator, seed):
        return Nodes(groups=[(f"number {next(CALLS)}", [1, 2])]).setup(query, evaluator, seed)


class Doubles(Nodes):
    def finish(self, explanation):
        return replace(explanation, bases=explanation.bases + 1)


class Nobody(Nodes):
    def setup(self, query, evaluator, seed):
        return replace(super().setup(query, evaluator, seed), players=Players())


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Isolate(), "is a graphsvx.methods.player_kinds.PlayerKind"),
        (Drawn(), "the same seed gives the same players"),
        (Doubles(), "add up to the prediction"),
        (Nobody(), "somebody plays"),
    ],
)
def test_wrong_kinds_of_players_are_rejected_with_the_broken_law(kind, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_players(kind, seeds=[0])


# --- methods --------------------------------------------------------------------------------


def answered(change):
    def method(query, seed):
        return change(Saliency()(query, seed))

    return method


def training(query, seed):
    query.model.submodules[0].some_attribute = 1
    return Saliency()(query, seed)


def noisy(query, seed):
    explanation = Saliency()(query, seed)
    return replace(explanation, bases=explanation.bases + np.random.default_rng().random())


def tosses(query, seed):
    np.random.random()
    return Saliency()(query, seed)


def moves_the_graph(query, seed):
    explanation = Saliency()(query, seed)
    query.graph.x[:] += 1
    return explanation


def with_nodes(change):
    def changed(explanation):
        credit = explanation.node_credit
        return replace(explanation, node_credit=change(credit))

    return answered(changed)


def refusing(query, seed):
    raise UnsupportedError("no")


@pytest.mark.parametrize(
    ("method", "law"),
    [
        (training, "the model is left as it was"),
        (moves_the_graph, "the graph is left as it was"),
        (tosses, "not from the global one of numpy"),
        (noisy, "the same seed gives the same bits"),
        (answered(lambda e: replace(e, centres=(3,))), "centres are those asked for"),
        (answered(lambda e: replace(e, predictions=e.predictions + 0.1)), "the model's own"),
        (with_nodes(lambda c: replace(c, ids=c.ids + 100)), "nodes that can reach"),
        (with_nodes(lambda c: replace(c, ids=c.ids * 0 + 1)), "nodes get credit once"),
        (with_nodes(lambda c: replace(c, values=c.values * np.nan)), "nodes are finite"),
        (answered(lambda e: replace(e, extra={"tuple": {1: 2}})), "survives JSON"),
        (refusing, "answers a question"),
    ],
)
def test_wrong_methods_are_rejected_with_the_broken_law(method, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_method(method)
