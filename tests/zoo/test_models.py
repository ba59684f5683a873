"""The models: shapes, what they can see, raw logits, weights on edges."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphsvx.errors import InputError, UnsupportedError
from graphsvx_lab import datasets, zoo
from graphsvx_lab.zoo.models import CONVOLUTIONS, CitationGAT, CitationGCN, NodeClassifier
from graphsvx_lab.zoo.settings import BLOCK_MODELS


def made(model: str, task: str = "node", **changes: object) -> torch.nn.Module:
    settings = replace(zoo.Settings(), model=model, **changes)
    torch.manual_seed(0)
    return zoo.build(settings, features=6, classes=3, task=task).eval()


def path_graph(size: int) -> Tensor:
    ids = torch.arange(size - 1)
    return torch.stack([torch.cat([ids, ids + 1]), torch.cat([ids + 1, ids])])


@pytest.mark.parametrize("model", BLOCK_MODELS)
@pytest.mark.parametrize("concat", [False, True])
def test_three_blocks_see_three_hops_and_no_further(model: str, concat: bool) -> None:
    net = made(model, concat=concat)
    edges, x = path_graph(9), torch.rand(9, 6)
    before = net(x, edges)
    far = x.clone()
    far[4] += 1
    moved = (net(far, edges) - before).abs().sum(1) > 0
    assert before.shape == (9, 3)
    assert not moved[0]
    assert not moved[8]
    assert moved[1:8].any()


@pytest.mark.parametrize("model", BLOCK_MODELS)
def test_a_batch_of_graphs_gives_what_each_gives_alone(model: str) -> None:
    net = made(model, task="graph")
    graphs = [Data(x=torch.rand(n, 6), edge_index=path_graph(n)) for n in (4, 9, 6)]
    batch = Batch.from_data_list(graphs)
    together = net(batch.x, batch.edge_index, batch.batch)
    alone = torch.cat([net(g.x, g.edge_index) for g in graphs])
    assert together.shape == (3, 3)
    assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("model", ["graphconv", "gcn"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_weight_zero_is_no_edge_and_weight_one_is_an_edge(model: str, task: str) -> None:
    net = made(model, task=task)
    edges, x = path_graph(7), torch.rand(7, 6)
    keep = torch.ones(edges.shape[1])
    assert torch.allclose(net(x, edges, edge_weight=keep), net(x, edges), atol=1e-6)
    keep[[2, 8]] = 0
    cut = net(x, edges[:, keep > 0])
    assert torch.allclose(net(x, edges, edge_weight=keep), cut, atol=1e-6)


def test_normalised_blocks_are_invariant_to_the_scale_of_messages() -> None:
    net = made("graphconv", normalise=True, concat=True)
    assert isinstance(net, NodeClassifier)
    for name, parameter in net.blocks.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    edges, x = path_graph(7), torch.rand(7, 6)
    assert torch.allclose(net(x, edges), net(9 * x, edges), atol=1e-6)
    lengths = net.blocks(x, edges).view(7, 3, 20).norm(dim=-1)
    assert bool((lengths <= 1 + 1e-6).all())


@pytest.mark.parametrize("model", ["gin", "sage", "gat"])
def test_others_refuse_weights_rather_than_ignore_them(model: str) -> None:
    edges = path_graph(4)
    with pytest.raises(UnsupportedError, match="cannot weigh edges"):
        made(model)(torch.rand(4, 6), edges, torch.ones(edges.shape[1]))


def test_sizes_are_the_papers() -> None:
    blocks = made("graphconv")
    shapes = [tuple(c.lin_rel.weight.shape) for c in blocks.blocks.convolutions]
    assert shapes == [(20, 6), (20, 20), (20, 20)]
    assert blocks.out.weight.shape == (3, 20)
    gcn = zoo.build(zoo.settings_for("cora", "gcn"), features=1433, classes=7, task="node")
    assert isinstance(gcn, CitationGCN)
    assert gcn.first.lin.weight.shape == (16, 1433)
    assert gcn.second.lin.weight.shape == (7, 16)
    gat = zoo.build(zoo.settings_for("cora", "gat"), features=1433, classes=7, task="node")
    assert isinstance(gat, CitationGAT)
    assert (gat.first.heads, gat.first.out_channels) == (8, 8)
    assert (gat.second.heads, gat.second.in_channels, gat.second.out_channels) == (1, 64, 7)
    wide = zoo.build(zoo.settings_for("pubmed", "gat"), features=500, classes=3, task="node")
    assert isinstance(wide, CitationGAT)
    assert wide.second.heads == 8
    assert wide(torch.rand(4, 500), path_graph(4)).shape == (4, 3)


def test_training_of_citation_models_is_the_papers() -> None:
    table = {
        ("cora", "gcn"): (50, 0.5, 0.01),
        ("cora", "gat"): (80, 0.6, 0.005),
        ("cora-noisy-nodes", "gat"): (80, 0.6, 0.005),
        ("pubmed", "gcn"): (150, 0.5, 0.01),
        ("pubmed-noisy-features", "gat"): (120, 0.6, 0.005),
    }
    for (name, model), (epochs, dropout, rate) in table.items():
        s = zoo.settings_for(name, model)
        assert (s.epochs, s.dropout, s.learning_rate, s.weight_decay) == (
            epochs,
            dropout,
            rate,
            5e-4,
        )


def test_every_model_of_every_set_can_be_made() -> None:
    for name in datasets.names():
        for model in zoo.models(name):
            settings = zoo.settings_for(name, model)
            assert settings.model == model
            assert zoo.Settings.from_json(settings.to_json()) == settings
            zoo.build(settings, features=5, classes=2, task="node", dataset=name)
    assert set(CONVOLUTIONS) == set(BLOCK_MODELS)


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown model 'resnet' for data set 'cora'.*gcn, gat"):
        zoo.settings_for("cora", "resnet")


def test_the_released_architecture_sees_neighbours_only_and_has_no_last_relu() -> None:
    net = made("released", layers=1, normalise=True)
    edges = torch.tensor([[1, 2], [0, 0]])
    x = torch.randn(3, 6)
    embedded = net.get_submodule("blocks")(x, edges)
    convolution = net.get_submodule("blocks.convolutions.0")
    by_hand = convolution.lin_rel(x[1] + x[2])
    assert torch.allclose(embedded[0], by_hand / by_hand.norm(), atol=1e-6)
    assert (embedded < 0).any()
    assert not convolution.lin_root.weight.requires_grad
    assert zoo.settings_for("tree-grid", "released").weight_decay == 5e-3
    assert not zoo.settings_for("ba-shapes", "released").cut_edges
