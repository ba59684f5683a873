"""Knowledge graphs: which facts support a link, against brute force on the whole graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, TemporalData
from torch_geometric.nn import GAE

import graphsvx
from graphsvx.core.types import short_names
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods import Edges, GraphSVX
from graphsvx.testing.oracle import shapley_values
from graphsvx_lab.zoo.models import RelationalEncoder
from tests.typed_worlds import hetero_model, typed_graph

FACTS = torch.tensor([[0, 0, 1], [1, 1, 2], [3, 0, 2], [4, 1, 0], [2, 1, 4], [5, 0, 3]]).t()


@pytest.fixture(scope="module")
def world() -> tuple[RelationalEncoder, Data]:
    torch.manual_seed(0)
    model = RelationalEncoder(7, 4, hidden=6, layers=1).double().eval()
    head, relation, tail = FACTS
    data = Data(
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        edge_type=torch.cat([relation, relation + 2]),
        num_nodes=7,
    )
    data.node_names = ["Ann", "Ben", "Cat", "Dan", "Eve", "Fay", "Gus"]
    data.relation_names = ["knows", "likes", "knows (inverse)", "likes (inverse)"]
    return model, data


def test_facts_that_support_a_link_equal_brute_force(world) -> None:
    model, data = world
    explanation = graphsvx.explain(
        model, data, edge=(0, 2), relation="likes", decoder=model.decoder, scale="value",
        method=GraphSVX(players="edges"),
    )  # fmt: skip
    count = FACTS.shape[1]

    def value(on: frozenset[int]) -> Tensor:
        keep = torch.tensor([i % count in on for i in range(2 * count)])
        with torch.no_grad():
            z = model(data.edge_index[:, keep], data.edge_type[keep])
        return model.decoder(z[:1], z[2:3], torch.tensor([1])).detach()

    credit = shapley_values(range(count), value)
    names = explanation.edge_credit.names or ()
    found = dict(zip(names, explanation.edge_values.tolist(), strict=True))
    assert found.keys() <= {
        f"{data.node_names[u]} –{data.relation_names[r + turned]}→ {data.node_names[v]}"
        for h, r, t in FACTS.t().tolist()
        for u, v, turned in ((h, t, 0), (t, h, 2))
    }
    by_ends = {frozenset(ends): v for ends, v in explanation.credit_by_ends().items()}
    for i, (h, _, t) in enumerate(FACTS.t().tolist()):
        assert by_ends.get(frozenset((h, t)), 0.0) == pytest.approx(float(credit[i][0]), abs=1e-9)
    assert explanation.base == pytest.approx(float(value(frozenset())[0]), abs=1e-9)
    assert explanation.certificate.fallback is None
    assert explanation.title.startswith("link Ann –likes→ Cat")


class PairDecoder(nn.Module):
    """As in PyG's examples: all embeddings, the pairs, the relation of each pair."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, z: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.inner(z[edge_index[0]], z[edge_index[1]], edge_type)


class EncodeDecode(nn.Module):
    """Without a forward of its own."""

    def __init__(self, inner: RelationalEncoder) -> None:
        super().__init__()
        self.inner = inner

    def encode(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.inner(edge_index, edge_type)

    def decode(self, z: Tensor, edge_label_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.inner.decoder(z[edge_label_index[0]], z[edge_label_index[1]], edge_type)


def test_decoders_of_models_score_the_relation(world) -> None:
    """A `decoder`, PyG's GAE, and `encode` with `decode` give the same as decoder=."""
    model, data = world
    question = {"edge": (0, 2), "relation": "likes", "method": GraphSVX(players="edges")}
    expected = graphsvx.explain(model, data, decoder=model.decoder, **question)
    bare = RelationalEncoder(7, 4, hidden=6, layers=1).double().eval()
    bare.load_state_dict(model.state_dict())
    for other in (model, GAE(bare, PairDecoder(model.decoder)), EncodeDecode(bare)):
        explanation = graphsvx.explain(other.eval(), data, **question)
        assert explanation.certificate.fallback is None
        torch.testing.assert_close(explanation.edge_values, expected.edge_values)
        assert explanation.title == expected.title


def test_decode_of_hetero_embeddings_scores_links_between_types() -> None:
    data = typed_graph(5, counts=(3, 2, 2))
    encoder = hetero_model("encoder", data, 5)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def encode(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return self.encoder(x_dict, edge_index_dict)

        def decode(self, z_dict: Any, edge_label_index: Tensor) -> Tensor:
            u, v = edge_label_index
            return (z_dict["author"][u] * z_dict["paper"][v]).sum(-1)

    question = {"edge": (("author", 0), ("paper", 1)), "method": GraphSVX(players="nodes")}
    expected = graphsvx.explain(encoder, data, **question)
    explanation = graphsvx.explain(Net().eval(), data, **question)
    torch.testing.assert_close(explanation.node_values, expected.node_values)


def test_path_names_are_shortened_unless_they_collide() -> None:
    names = ["/film/film/genre", "/tv/program/genre", "/a/b/crew./c/d/role", "writes", "x/y"]
    assert short_names(names) == ("film/genre", "program/genre", "crew.role", "writes", "y")
    assert short_names(["/a/b", "c/a/b"]) == ("/a/b", "c/a/b")


def test_a_fact_and_its_inverse_are_one_player(world) -> None:
    model, data = world
    question = {"edge": (0, 2), "relation": 1, "decoder": model.decoder, "scale": "value"}
    together = graphsvx.explain(model, data, **question, method=GraphSVX(players="edges"))
    apart = graphsvx.explain(
        model, data, **question, method=GraphSVX(players=Edges(directions="apart"))
    )
    assert together.edge_credit.players == apart.edge_credit.players == 5  # those into the ends
    assert all("inverse" not in name for name in together.edge_credit.names or ())
    assert together.total == pytest.approx(apart.total, abs=1e-9)


def test_invalid_queries_are_refused(world) -> None:
    model, data = world
    with pytest.raises(InputError, match="edge types are"):
        graphsvx.explain(model, data, edge=(0, 2), relation="hates", decoder=model.decoder)
    with pytest.raises(InputError, match="needs a decoder"):
        graphsvx.explain(model.convolutions[0], data, edge=(0, 2), relation="likes")
    events = TemporalData(
        src=torch.tensor([0]), dst=torch.tensor([1]), t=torch.tensor([0]), msg=torch.zeros(1, 1)
    )
    with pytest.raises(UnsupportedError, match="stream of events"):
        graphsvx.explain(model, events, node=0)
