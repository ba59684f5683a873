"""Knowledge graphs: which facts support a link, against brute force on the whole graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, TemporalData

import graphsvx
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods import Edges, GraphSVX
from graphsvx.zoo.typed_models import RelationalEncoder
from tests.typed_worlds import shapley

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

    credit, base = shapley(range(count), value)
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
    assert explanation.base == pytest.approx(float(base[0]), abs=1e-9)
    assert explanation.certificate.fallback is None
    assert explanation.title.startswith("link Ann –likes→ Cat")


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
        graphsvx.explain(model, data, edge=(0, 2), relation="likes")
    events = TemporalData(
        src=torch.tensor([0]), dst=torch.tensor([1]), t=torch.tensor([0]), msg=torch.zeros(1, 1)
    )
    with pytest.raises(UnsupportedError, match="stream of events"):
        graphsvx.explain(model, events, node=0)
