"""The paper's table of explainers, measured: what a method's `blocks.properties` says, it does."""

from __future__ import annotations

import copy
from itertools import combinations
from statistics import mean

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import graphsvx
from graphsvx.errors import UnsupportedError
from graphsvx.estimators.direct import as_nodes
from graphsvx.methods import PGExplainer, registry
from graphsvx.metrics import efficiency_residual
from tests.methods.conftest import EDGES, NODES, OWN, hand_set

pytestmark = pytest.mark.learned

PER_INSTANCE = [name for name in registry.names() if name != "xgnn"]


class GCN(nn.Module):
    """Two layers with random weights; `factor` scales the scores."""

    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(5)
        self.first = GCNConv(5, 8)
        self.second = GCNConv(8, 3)
        self.factor = factor

    def forward(self, x, edge_index):
        return self.factor * self.second(self.first(x, edge_index).tanh(), edge_index)


class Difference(nn.Module):
    """f_1 - f_0 of another model, as its only output."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index):
        out = self.inner(x, edge_index)
        return out[:, 1:2] - out[:, 0:1]


@pytest.fixture(scope="module")
def world():
    torch.manual_seed(7)
    pairs = [(i, int(torch.randint(i, (1,)))) for i in range(1, 40)]
    pairs += [(int(a), int(b)) for a, b in torch.randint(40, (15, 2)) if a != b]
    ends = torch.tensor(pairs).t()
    data = Data(x=torch.randn(40, 5), edge_index=torch.cat([ends, ends.flip(0)], 1))
    return GCN().eval(), data


def made(name, model, data, seed=0, **asked):
    """The method, trained where it needs training."""
    if name == "pgexplainer":
        return PGExplainer(epochs=3).fit(model, data, nodes=[0, 3, 5], seed=seed, **asked)
    return registry.method(name)


def value(name, model, data, **asked):
    method = made(name, model, data, scale="value", target=asked.get("target", 1))
    return graphsvx.explain(model, data, node=3, method=method, scale="value", **asked)


def credit(e):
    return torch.cat([e.feature_values, e.node_values, e.edge_values])


def decomposable(name, world):
    # Smooth and not: integrated gradients come out even on the first only.
    gaps = []
    for model, data, node in ((*world, 3), (*hand_set(), 0)):
        e = graphsvx.explain(model, data, node=node, method=made(name, model, data))
        gaps.append(efficiency_residual(e))
    return max(gaps) < 1e-6


def general(name, world):
    model, data = world
    try:
        graphsvx.explain(model, data, nodes=[3, 5], method=made(name, model, data))
    except UnsupportedError:
        return False
    return True


def correlation(explanations):
    """Mean over pairs, of the credit of all players.

    A cosine would be high for any two masks around 0.5.
    """
    pairs = combinations([credit(e) for e in explanations], 2)
    # Constant credit has no correlation, but is the same as itself.
    correlations = [1.0 if torch.equal(*pair) else float(torch.stack(pair).corrcoef()[0, 1])
             for pair in pairs]  # fmt: skip
    return mean(correlations)


def robust(name, world):
    model, data = world
    by_seed = [
        graphsvx.explain(model, data, node=3, method=made(name, model, data, seed), seed=seed)
        for seed in range(1, 5)
    ]
    noisy = copy.copy(data)
    torch.manual_seed(0)
    noisy.x = data.x + 0.01 * data.x.std(0) * torch.randn_like(data.x)
    method, target = made(name, model, noisy, 1), by_seed[0].target
    with_noise = graphsvx.explain(model, noisy, node=3, method=method, seed=1, target=target)
    return correlation(by_seed) >= 0.99 and correlation([by_seed[0], with_noise]) >= 0.99


def differ(found, expected):
    """If credit is more than 5 % away from what was expected, or nothing was."""
    return not bool((found - expected).norm() < 0.05 * expected.norm())


def meaningful(name, world):
    _, data = world
    once, twice = (value(name, GCN(factor).eval(), data, target=1) for factor in (1.0, 2.0))
    return not differ(credit(twice), 2 * credit(once))


def idle_share(name, seed):
    """The share of players that cannot matter that get 0."""
    model, data = hand_set(seed)
    e = as_nodes(graphsvx.explain(model, data, node=0, method=made(name, model, data), seed=seed))
    idle = [abs(v) for i, v in e.nodes.items() if i not in NODES]
    idle += [abs(v) for i, v in e.edges.items() if i not in EDGES]
    idle += [abs(v) for i, v in e.features.items() if i not in {0, OWN}]
    largest = float(credit(e).abs().max())
    return mean(v <= 1e-9 * largest for v in idle)


def contrastive(name, world):
    model, data = world
    contrast = value(name, model, data, targets="all").contrast(1, 0)
    return not differ(credit(contrast), credit(value(name, Difference(model), data, target=0)))


@pytest.mark.parametrize("name", PER_INSTANCE)
@pytest.mark.parametrize(
    "measure", [decomposable, general, robust, meaningful, contrastive], ids=lambda m: m.__name__
)
def test_the_property_is_as_stated(name, measure, world):
    said = getattr(registry.blocks(name).properties, measure.__name__)
    assert measure(name, world) == said


@pytest.mark.parametrize("name", PER_INSTANCE)
def test_selectivity_is_as_stated(name):
    most = mean(idle_share(name, seed) for seed in range(5)) > 0.5
    assert most == registry.blocks(name).properties.selective


def test_a_model_level_method_says_nothing_about_players():
    said = registry.blocks("xgnn").properties
    assert said.general
    about_players = (said.decomposable, said.meaningful, said.selective, said.contrastive)
    assert not any(about_players)
