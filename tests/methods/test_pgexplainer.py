"""PGExplainer: trained once, instant, inductive, saved, and PyG's own."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import PGExplainer as PyGExplainer
from torch_geometric.nn import GraphSAGE

import graphsvx
from graphsvx.core.query import build_query
from graphsvx.errors import DataError, InputError, UnsupportedError
from graphsvx.methods.learned import PGExplainer
from graphsvx_lab.metrics import accuracy, auroc
from tests.methods.conftest import CLIQUE, Known, KnownGraph, both_ways
from tests.methods.test_wrapped import GCN, small  # noqa: F401  (a fixture)
from tests.worlds import random_graph

pytestmark = pytest.mark.learned

QUICK = PGExplainer(epochs=20, lr=0.01, size=0.3, entropy=0.1)


@pytest.fixture
def stars():
    """Twelve centres with six neighbours each; two of the six carry the signal.

    The network sees nothing but the last layer's embeddings, so a third output, which no node is
    ever given, shows who carries the signal.
    """
    model = Known(classes=3)
    with torch.no_grad():
        model.second.lin_root.weight[2, 0] = 2.0
        model.second.lin_rel.bias[2] = -5.0
    torch.manual_seed(0)
    pairs, x, truth = [], 0.3 * torch.rand(84, 6), {}
    x[:, 1] = 0.0
    for star in range(12):
        centre = 7 * star
        pairs += [(centre + i, centre) for i in range(1, 7)]
        chosen = (centre + 1 + star % 6, centre + 1 + (star + 2) % 6)
        x[list(chosen), 0] = 1.0
        x[centre, :2] = torch.tensor([0.0, 1.0])
        truth[centre] = {(chosen[0], centre), (chosen[1], centre)}
    # Directed, into the centres: an edge back could not matter and its ends look the same.
    return model, Data(x=x, edge_index=torch.tensor(pairs).t()), truth


def test_edges_that_matter_are_found_on_nodes_it_was_not_trained_on(stars):
    model, data, truth = stars
    centres = list(truth)
    method = QUICK.fit(model, data, nodes=centres[:6])
    explanations = [graphsvx.explain(model, data, node=c, method=method) for c in centres[6:]]
    assert accuracy(explanations, [truth[c] for c in centres[6:]], level="edges") > 0.9
    assert auroc(explanations, [truth[c] for c in centres[6:]], level="edges") > 0.9
    assert all(0 <= v <= 1 for e in explanations for v in e.edges.values())


def test_graphs_are_learned_from_graphs(known_graph):
    model, data = known_graph
    torch.manual_seed(0)
    shuffled = []
    for _ in range(5):
        order = torch.randperm(12)
        x = torch.empty_like(data.x)
        x[order] = data.x
        shuffled.append(Data(x=x, edge_index=order[data.edge_index]))
    method = PGExplainer(epochs=60, lr=0.01, size=0.02, entropy=0.1).fit(model, shuffled)
    e = graphsvx.explain(model, data, graph=True, method=method)
    inside = {(u, v) for u, v in data.edge_index.t().tolist() if u in CLIQUE and v in CLIQUE}
    assert auroc(e, inside, level="edges") > 0.9
    with pytest.raises(UnsupportedError, match="trained on graphs"):
        graphsvx.explain(
            Known(4), Data(x=data.x, edge_index=data.edge_index), node=0, method=method
        )


def test_pgexplainer_matches_pyg(small):  # noqa: F811  (a fixture)
    model, data = small
    ours = PGExplainer(epochs=3).fit(model, data, nodes=[0, 2], seed=5)
    target = torch.tensor([graphsvx.explain(model, data, node=i).target for i in range(7)])
    explainer = Explainer(
        model,
        PyGExplainer(epochs=3),
        explanation_type="phenomenon",
        model_config={
            "mode": "multiclass_classification", "task_level": "node", "return_type": "raw",
        },
        edge_mask_type="object",
    )  # fmt: skip
    torch.manual_seed(5)
    for parameter in explainer.algorithm.mlp:
        getattr(parameter, "reset_parameters", lambda: None)()
    for epoch in range(3):
        for index in (0, 2):
            explainer.algorithm.train(
                epoch, model, data.x, data.edge_index, target=target, index=torch.tensor([index])
            )
    for node in (0, 4):
        direct = explainer(data.x, data.edge_index, target=target, index=node)
        e = graphsvx.explain(model, data, node=node, method=ours)
        torch.testing.assert_close(e.edge_values.float(), direct.edge_mask.detach())


def test_the_field_gives_what_the_whole_graph_gives():
    """Embeddings of the field's outer nodes need nodes beyond it."""
    torch.manual_seed(2)
    data = Data(x=torch.randn(60, 5), edge_index=both_ways([(i, i + 1) for i in range(59)]))
    model = GCN().eval()
    method = PGExplainer(epochs=2).fit(model, data, nodes=[20, 40])
    e = graphsvx.explain(model, data, node=30, method=method)
    assert e.field.ids.numel() == 5
    algorithm = method.network(build_query(model, data, node=30))
    target = torch.full((60,), e.target)
    pyg_result = algorithm(model, data.x, data.edge_index, target=target, index=torch.tensor([30]))
    ends = [tuple(pair) for pair in data.edge_index.t().tolist()]
    for pair, value in e.edges.items():
        assert value == pytest.approx(float(pyg_result.edge_mask[ends.index(pair)]), abs=1e-6)


def test_saving_and_loading_gives_the_same_answers(stars, tmp_path):
    model, data, truth = stars
    method = PGExplainer(epochs=2, temperature=(4.0, 1.0)).fit(model, data, nodes=list(truth)[:2])
    method.save(tmp_path / "pg.safetensors")
    again = PGExplainer.load(tmp_path / "pg.safetensors")
    assert again == method
    first, second = (graphsvx.explain(model, data, node=7, method=m) for m in (method, again))
    assert first.to_dict() == second.to_dict()
    with pytest.raises(DataError, match="no file"):
        PGExplainer.load(tmp_path / "other.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(DataError, match="no saved PGExplainer"):
        PGExplainer.load(tmp_path / "bad.safetensors")
    with pytest.raises(InputError, match="nothing to save"):
        PGExplainer().save(tmp_path / "none.safetensors")


def test_training_does_not_leak_settings_into_others(stars):
    model, data, _ = stars
    before = dict(PyGExplainer.coeffs)
    PGExplainer(epochs=1, size=9.0).fit(model, data, nodes=[0])
    assert before == PyGExplainer.coeffs


def test_the_same_seed_trains_the_same_network(stars):
    model, data, _ = stars
    a, b, c = (PGExplainer(epochs=2).fit(model, data, nodes=[0, 7], seed=s) for s in (1, 1, 2))
    assert all(torch.equal(a.trained.weights[k], b.trained.weights[k]) for k in a.trained.weights)
    assert any(
        not torch.equal(a.trained.weights[k], c.trained.weights[k]) for k in a.trained.weights
    )


def test_explaining_is_instant_beside_training(stars):
    model, data, truth = stars
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    method = PGExplainer(epochs=20).fit(model, data, nodes=list(truth))
    training = len(calls)
    graphsvx.explain(model, data, node=0, method=method)
    assert len(calls) - training < 0.1 * training


def test_groups_are_the_mean_of_their_nodes(stars):
    model, data, truth = stars
    method = PGExplainer(epochs=2).fit(model, data, nodes=[0])
    pair = graphsvx.explain(model, data, nodes=[0, 7], method=method, target=1)
    explanation = graphsvx.explain(model, data, node=7, method=method, target=1)
    for edge in truth[7]:
        assert pair.edges[edge] == pytest.approx(explanation.edges[edge] / 2)


def test_untrained_or_unfit_questions_are_refused(stars):
    model, data, _ = stars
    with pytest.raises(UnsupportedError, match=r"fit\(model"):
        graphsvx.explain(model, data, node=0, method=PGExplainer())
    with pytest.raises(UnsupportedError, match="MessagePassing"):
        PGExplainer().fit(lambda x, edge_index: x[:, :2], data, nodes=[0])
    with pytest.raises(InputError, match="at least one"):
        PGExplainer().fit(model, data, nodes=[])
    for wrong in ({"epochs": 0}, {"lr": 0.0}):
        with pytest.raises(InputError, match="must be"):
            PGExplainer(**wrong)
    method = PGExplainer(epochs=1).fit(model, data, nodes=[0])
    with pytest.raises(InputError, match="other embeddings"):
        graphsvx.explain(Known(classes=5), data, node=0, method=method)


def test_dropout_stays_off_while_training_and_explaining(stars):
    model, data, _ = stars
    seen = []
    model.register_forward_hook(lambda module, *_: seen.append(module.training))
    model.train()
    method = PGExplainer(epochs=2).fit(model, data, nodes=[0, 7])
    graphsvx.explain(model, data, node=0, method=method)
    assert seen
    assert not any(seen)


def test_the_model_is_left_as_found(stars):
    model, data, _ = stars
    model.train()
    PGExplainer(epochs=1).fit(model, data, nodes=[0])
    assert all(module.training for module in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all("_edge_mask" not in module._parameters for module in model.modules())
    assert isinstance(KnownGraph(), torch.nn.Module)


def test_models_in_double_precision() -> None:
    torch.manual_seed(0)
    data = random_graph(0, nodes=8)
    data.x = data.x.double()
    model = GraphSAGE(data.num_features, 8, 2, 2).double().eval()
    method = PGExplainer(epochs=2).fit(model, data, nodes=[0, 1])
    assert {weight.dtype for weight in method.trained.weights.values()} == {torch.float64}
    assert graphsvx.explain(model, data, node=0, method=method).edge_credit.ids.size
    single = Data(x=data.x.float(), edge_index=data.edge_index)
    assert graphsvx.explain(model.float(), single, node=0, method=method).edge_credit.ids.size


@pytest.mark.parametrize("nodes", [3, "12", [1.5], torch.tensor([True])])
def test_nodes_to_train_on_must_be_node_numbers(nodes) -> None:
    data = random_graph(0, nodes=8)
    with pytest.raises(InputError, match="nodes"):
        PGExplainer(epochs=2).fit(GraphSAGE(data.num_features, 8, 2, 2), data, nodes=nodes)
