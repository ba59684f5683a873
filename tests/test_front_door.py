"""Models and data as PyG users bring them along are explained right.

Each case says how its user calls the model, and so does the oracle.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from matplotlib.text import Text
from rich.console import Console
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, LinkLoader, NodeLoader, RandomNodeLoader
from torch_geometric.nn import (
    GAE,
    GCN,
    EdgeCNN,
    GATConv,
    GCNConv,
    GraphConv,
    RGCNConv,
    global_mean_pool,
)
from torch_geometric.sampler import BaseSampler
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from graphsvx import Explanation, GraphSVX, explain, explain_many
from graphsvx.errors import InputError, ModelError
from graphsvx.runs import arrow_schema
from graphsvx.testing.oracle import algorithm_1, cut, shapley_values
from tests.worlds import random_graph

NODE = 1


def softmax(out: Tensor) -> Tensor:
    return out.softmax(-1)


@dataclass(frozen=True, eq=False)
class Case:
    """A model, its data, how its user calls it, and how its output is read."""

    model: nn.Module | Callable[..., Any]
    data: Data
    call: Callable[[Any, Data], Any]
    """(model, data) -> the output for every node (or the graph, or the link)."""
    read: Callable[[Tensor], Tensor] = softmax
    question: dict[str, Any] = field(default_factory=lambda: {"node": NODE})
    options: dict[str, Any] = field(default_factory=dict)
    warns: str | None = None
    edges: Data | None = None
    """The graph with `edge_index`, where the data has something else."""


def graph_of(seed: int = 3, nodes: int = 8, features: int = 3, **attributes: Any) -> Data:
    data = random_graph(seed, nodes=nodes, features=features)
    del data.y
    for name, value in attributes.items():
        setattr(data, name, value)
    return data


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """Two layers; subclasses say how they are called."""

    def __init__(self, given: int = 3, wanted: int = 3, layer: Any = GCNConv) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(given, 8), layer(8, wanted)
        self.double().eval()

    def nodes(self, x: Tensor, edge_index: Tensor, *rest: Any) -> Tensor:
        return self.second(self.first(x, edge_index, *rest).tanh(), edge_index, *rest)


# --- how a model is called -----------------------------------------------------------------


def takes_data() -> Case:
    class TakesData(Net):
        def forward(self, data):
            return self.nodes(data.x, data.edge_index)

    return Case(TakesData(), graph_of(), lambda model, data: model(data))


def takes_data_with_attributes() -> Case:
    class TakesData(Net):
        def forward(self, batch: Data):
            weight = batch.closeness.sigmoid()
            return self.nodes(torch.cat([batch.x, batch.pos], 1), batch.edge_index, weight)

    data = graph_of(pos=draws(8, 2))
    data.closeness = draws(data.num_edges, seed=1)
    return Case(TakesData(5, layer=GraphConv), data, lambda model, data: model(data))


def takes_edge_type() -> Case:
    class Relational(Net):
        def __init__(self) -> None:
            super().__init__(layer=lambda given, wanted: RGCNConv(given, wanted, 3))

        def forward(self, x, edge_index, edge_type):
            return self.nodes(x, edge_index, edge_type)

    data = graph_of()
    data.edge_type = torch.arange(data.num_edges) % 3
    return Case(Relational(), data, lambda model, d: model(d.x, d.edge_index, d.edge_type))


def takes_positions() -> Case:
    class Spatial(Net):
        def forward(self, x, edge_index, pos, time):
            far = (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)
            return self.nodes(torch.cat([x, time[:, None]], 1), edge_index, 1 / (1 + far))

    data = graph_of(pos=draws(8, 3), time=draws(8, seed=4))
    return Case(
        Spatial(4, layer=GraphConv), data, lambda model, d: model(d.x, d.edge_index, d.pos, d.time)
    )


def takes_atoms_instead_of_features() -> Case:
    class Atoms(Net):
        def __init__(self) -> None:
            super().__init__(6)
            self.table = nn.Embedding(5, 6).double()

        def forward(self, z, edge_index):
            return self.nodes(self.table(z), edge_index)

    data = graph_of(z=torch.arange(8) % 5)
    del data.x
    return Case(Atoms(), data, lambda model, d: model(d.z, d.edge_index))


def own_keyword_names() -> Case:
    class Own(Net):
        def forward(self, *, adjacency, h, strength):
            return self.nodes(h, adjacency, strength)

    data = graph_of()
    data.edge_weight = draws(data.num_edges).abs()
    return Case(
        Own(layer=GraphConv), data,
        lambda model, d: model(h=d.x, adjacency=d.edge_index, strength=d.edge_weight),
        options={
            "arguments": {"h": "x", "adjacency": "edge_index", "strength": "edge_weight"}
        },
    )  # fmt: skip


def other_order() -> Case:
    class Other(Net):
        def forward(self, edge_index, x):
            return self.nodes(x, edge_index)

    return Case(Other(), graph_of(), lambda model, d: model(d.edge_index, d.x))


def compiled() -> Case:
    class Plain(Net):
        def forward(self, x, edge_index):
            return self.nodes(x, edge_index)

    model = Plain()
    return Case(
        torch.compile(model), graph_of(), lambda _, d: model(d.x, d.edge_index)
    )  # fmt: skip


def compiled_in_place() -> Case:
    class Plain(Net):
        def forward(self, x, edge_index):
            return self.nodes(x, edge_index)

    model = Plain()
    model.compile()
    return Case(model, graph_of(), lambda _, d: model.forward(d.x, d.edge_index))


def table_for_all_nodes() -> Case:
    class Table(Net):
        def __init__(self) -> None:
            super().__init__(7)
            self.emb = nn.Embedding(8, 4).double()

        def forward(self, x, edge_index):
            return self.nodes(torch.cat([x, self.emb.weight], 1), edge_index)

    return Case(Table(), graph_of(), lambda model, d: model(d.x, d.edge_index))


def no_features_but_a_table() -> Case:
    class Table(Net):
        def __init__(self) -> None:
            super().__init__(4)
            self.emb = nn.Embedding(8, 4).double()

        def forward(self, edge_index):
            return self.nodes(self.emb.weight, edge_index)

    data = graph_of(num_nodes=8)
    del data.x
    return Case(Table(), data, lambda model, d: model(d.edge_index))


def no_features_given_as_none() -> Case:
    class Table(Net):
        def __init__(self) -> None:
            super().__init__(4)
            self.emb = nn.Embedding(8, 4).double()

        def forward(self, x, edge_index):
            return self.nodes(self.emb.weight if x is None else x, edge_index)

    data = graph_of(num_nodes=8)
    del data.x
    return Case(Table(), data, lambda model, d: model(None, d.edge_index))


def table_by_node_id() -> Case:
    class Table(Net):
        def __init__(self) -> None:
            super().__init__(4)
            self.emb = nn.Embedding(8, 4).double()

        def forward(self, n_id, edge_index):
            return self.nodes(self.emb(n_id), edge_index)

    data = graph_of(n_id=torch.arange(8))
    del data.x
    return Case(Table(), data, lambda model, d: model(d.n_id, d.edge_index))


def double_features_float_model() -> Case:
    class Plain(Net):
        def __init__(self) -> None:
            super().__init__()
            self.float()

        def forward(self, x, edge_index):
            return self.nodes(x, edge_index)

    return Case(Plain(), graph_of(), lambda model, d: model(d.x.float(), d.edge_index).double(),
                warns="float64")  # fmt: skip


class TakesAdjacency(Net):
    def forward(self, x, adj_t):
        return self.nodes(x, adj_t)


def adjacency(layout: str, weighted: bool) -> Case:
    data = graph_of()
    edges = data.edge_index.unique(dim=1)
    weight = draws(edges.shape[1]).abs() if weighted else torch.ones(edges.shape[1]).double()
    plain = Data(x=data.x, edge_index=edges, edge_weight=weight)
    make = to_torch_csr_tensor if layout == "csr" else to_torch_coo_tensor

    def call(model, d):
        return model(d.x, make(d.edge_index.flip(0), d.edge_weight, size=(8, 8)))

    data.edge_index = None
    data.adj_t = make(edges.flip(0), weight, size=(8, 8))
    return Case(TakesAdjacency(layer=GCNConv), data, call, edges=plain)


def matrix_product() -> Case:
    class Product(Net):
        def __init__(self) -> None:
            super().__init__(layer=nn.Linear)

        def forward(self, x, adj):
            return self.second(adj @ self.first(adj @ x).tanh())

    data = graph_of()
    edges = data.edge_index.unique(dim=1)
    weight = draws(edges.shape[1]).abs()
    data.edge_index = None
    data.adj = torch.sparse_coo_tensor(edges.flip(0), weight, (8, 8)).coalesce()
    plain = Data(x=data.x, edge_index=edges, edge_weight=weight)

    def call(model, d):
        return model(d.x, torch.sparse_coo_tensor(d.edge_index.flip(0), d.edge_weight, (8, 8)))

    return Case(Product(), data, call, edges=plain)


def one_number_a_node() -> Case:
    class Scalar(Net):
        def forward(self, x, edge_index):
            return self.nodes(x[:, None], edge_index)

    data = graph_of()
    data.x = draws(8)
    return Case(Scalar(1), data, lambda model, d: model(d.x, d.edge_index))


def time_series() -> Case:
    class Recurrent(Net):
        def __init__(self) -> None:
            super().__init__(4)
            self.gru = nn.GRU(2, 4, batch_first=True).double()

        def forward(self, x, edge_index):
            return self.nodes(self.gru(x)[1][0], edge_index)

    data = graph_of()
    data.x = draws(8, 5, 2)
    return Case(Recurrent(), data, lambda model, d: model(d.x, d.edge_index))


def integer_features() -> Case:
    class Categories(Net):
        def __init__(self) -> None:
            super().__init__(8)
            self.tables = nn.ModuleList([nn.Embedding(4, 4), nn.Embedding(3, 4)]).double()

        def forward(self, x, edge_index):
            rows = [table(x[:, i]) for i, table in enumerate(self.tables)]
            return self.nodes(torch.cat(rows, 1), edge_index)

    data = graph_of()
    data.x = torch.stack([torch.arange(8) % 4, torch.arange(8) % 3], 1)
    return Case(Categories(), data, lambda model, d: model(d.x, d.edge_index))


# --- how outputs are read ------------------------------------------------------------------


class Plain(Net):
    def forward(self, x, edge_index):
        return self.nodes(x, edge_index)


def called(model: Any, data: Data) -> Any:
    return model(data.x, data.edge_index)


def multilabel() -> Case:
    return Case(Plain(), graph_of(), called, torch.sigmoid, options={"output": "multilabel"})


def multilabel_seen_by_its_sigmoid() -> Case:
    class Squashed(Net):
        def forward(self, x, edge_index):
            return self.nodes(x, edge_index).sigmoid()

    return Case(Squashed(), graph_of(), called, lambda out: out)


def multilabel_seen_by_its_range() -> Case:
    class Squashed(Net):
        def forward(self, x, edge_index):
            return 1 / (1 + (-self.nodes(x, edge_index)).exp())

    return Case(Squashed(), graph_of(), called, lambda out: out, warns='output="multilabel"')


def logits_that_happen_to_be_between_0_and_1() -> Case:
    class Small(Net):
        def forward(self, x, edge_index):
            hidden = self.first(x, edge_index).relu()
            return 0.5 + 0.1 * self.second(hidden, edge_index)

    return Case(Small(), graph_of(), called)


def multilabel_seen_by_its_labels() -> Case:
    y = (draws(8, 3) > 0).double()
    return Case(Plain(), graph_of(y=y), called, torch.sigmoid, warns='output="multilabel"')


def softmax_seen() -> Case:
    class Squashed(Net):
        def forward(self, x, edge_index):
            return nn.functional.softmax(self.nodes(x, edge_index), dim=-1)

    return Case(Squashed(), graph_of(), called, lambda out: out)


def regression() -> Case:
    return Case(Plain(3, 1), graph_of(), called, lambda out: out, options={"output": "regression"})


def regression_seen_by_its_labels() -> Case:
    return Case(Plain(3, 1), graph_of(y=draws(8)), called, lambda out: out,
                warns='output="regression"')  # fmt: skip


def binary(out: Tensor) -> Tensor:
    return torch.stack([1 - out.sigmoid(), out.sigmoid()], -1).reshape(*out.shape[:-1], 2)


def one_output_without_a_word() -> Case:
    return Case(Plain(3, 1), graph_of(), called, binary, warns='output="regression"')


def one_output_with_a_scale() -> Case:
    return Case(Plain(3, 1), graph_of(), called, binary, options={"scale": "probability"})


def one_output_with_binary_labels() -> Case:
    return Case(Plain(3, 1), graph_of(y=torch.arange(8) % 2), called, binary)


def dictionary_of_outputs() -> Case:
    class Several(Net):
        def forward(self, x, edge_index):
            out = self.nodes(x, edge_index)
            return {"logits": out, "hidden": out.sum()}

    return Case(
        Several(), graph_of(), lambda model, d: called(model, d)["logits"],
        options={"output": lambda out: out["logits"]},
    )  # fmt: skip


def tuple_of_outputs() -> Case:
    class Several(Net):
        def forward(self, x, edge_index):
            out = self.nodes(x, edge_index)
            return out, out.norm()

    return Case(
        Several(), graph_of(), lambda model, d: called(model, d)[0],
        options={"output": lambda out: out[0], "scale": "value", "target": 1},
        read=lambda out: out,
    )  # fmt: skip


def record_of_outputs() -> Case:
    @dataclass
    class Outputs:
        hidden: Tensor
        logits: Tensor

    class Several(Net):
        def forward(self, x, edge_index):
            out = self.nodes(x, edge_index)
            return Outputs(out.tanh(), out)

    return Case(
        Several(), graph_of(), lambda model, d: called(model, d).logits,
        options={"output": lambda out: out.logits},
    )  # fmt: skip


# --- graphs and links ----------------------------------------------------------------------


def graph_model_without_batch() -> Case:
    class Pooled(Net):
        def forward(self, x, edge_index):
            return self.nodes(x, edge_index).mean(0, keepdim=True)

    return Case(Pooled(), graph_of(nodes=6), lambda model, d: called(model, d)[0],
                question={"graph": True})  # fmt: skip


def graph_model_of_one_row() -> Case:
    class Pooled(Net):
        def forward(self, x, edge_index):
            return self.nodes(x, edge_index).max(0).values

    return Case(Pooled(), graph_of(nodes=6), called, question={"graph": True})


def graph_model_that_takes_data() -> Case:
    class Pooled(Net):
        def forward(self, data):
            pooled = global_mean_pool(self.nodes(data.x, data.edge_index), data.batch)
            return pooled + data.u

    data = graph_of(nodes=6, u=draws(1, 3))
    return Case(Pooled(), data, lambda model, d: model(d)[0], question={"graph": True})


def graph_model_that_takes_data_alone() -> Case:
    class Pooled(Net):
        def forward(self, data):
            return global_mean_pool(self.nodes(data.x, data.edge_index), data.batch)

    def call(model, d):
        d.batch = torch.zeros(6, dtype=torch.long)
        return model(d)[0]

    return Case(Pooled(), graph_of(nodes=6), call, question={"graph": True})


def graph_model_with_positions() -> Case:
    class Pooled(Net):
        def forward(self, x, edge_index, pos, batch):
            return global_mean_pool(self.nodes(torch.cat([x, pos], 1), edge_index), batch)

    data = graph_of(nodes=6, pos=draws(6, 2))
    zeros = torch.zeros(6, dtype=torch.long)
    return Case(Pooled(5), data, lambda model, d: model(d.x, d.edge_index, d.pos, zeros)[0],
                question={"graph": True})  # fmt: skip


class Encoder(Net):
    def encode(self, x, edge_index):
        return self.nodes(x, edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1) - z[edge_label_index[0], 0]


LINK = (1, 4)


def encoder_and_decoder() -> Case:
    def call(model, d):
        return model.decode(model.encode(d.x, d.edge_index), torch.tensor([LINK]).t())

    return Case(Encoder(), graph_of(), call, binary, question={"edge": LINK})


def autoencoder() -> Case:
    def call(model, d):
        z = model.encode(d.x, d.edge_index)
        return model.decoder(z, torch.tensor([LINK]).t(), sigmoid=False)

    torch.manual_seed(0)
    return Case(GAE(GCN(3, 8, 2, 4)).double(), graph_of(), call, binary, question={"edge": LINK})


CASES: dict[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        takes_data, takes_data_with_attributes, takes_edge_type, takes_positions,
        takes_atoms_instead_of_features, own_keyword_names, other_order, compiled,
        compiled_in_place, table_for_all_nodes, no_features_but_a_table,
        no_features_given_as_none, table_by_node_id, double_features_float_model, matrix_product,
        one_number_a_node, time_series, integer_features, multilabel,
        multilabel_seen_by_its_sigmoid, multilabel_seen_by_its_range,
        logits_that_happen_to_be_between_0_and_1, multilabel_seen_by_its_labels, softmax_seen,
        regression, regression_seen_by_its_labels,
        one_output_without_a_word, one_output_with_a_scale, one_output_with_binary_labels,
        dictionary_of_outputs, tuple_of_outputs, record_of_outputs, graph_model_without_batch,
        graph_model_of_one_row, graph_model_that_takes_data,
        graph_model_that_takes_data_alone, graph_model_with_positions, encoder_and_decoder,
        autoencoder,
    )
} | {
    f"adjacency_{layout}_{'weighted' if weighted else 'plain'}": (
        lambda layout=layout, weighted=weighted: adjacency(layout, weighted)
    )
    for layout in ("csr", "coo") for weighted in (False, True)
}  # fmt: skip


def scores(case: Case, data: Data) -> Tensor:
    with torch.no_grad():
        out = case.call(case.model, data)
        row = out[case.question["node"]] if "node" in case.question else out
        return case.read(row).reshape(-1)


@pytest.mark.filterwarnings("ignore:Sparse|Converting sparse")
@pytest.mark.parametrize("name", list(CASES))
def test_brute_force_agrees(name: str) -> None:
    case = CASES[name]()
    method = GraphSVX(players="nodes", samples=4000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        e = explain(case.model, case.data, method=method, **case.question, **case.options)
    said = [text for text in (str(warning.message) for warning in caught) if "parse" not in text]
    if case.warns is None:
        assert not said
    else:
        assert any(case.warns in message for message in said), said
    tolerance = 1e-5 if case.warns == "float64" else 1e-9
    assert e.nodes
    truth = algorithm_1(
        lambda d: float(scores(case, d)[e.target]), case.edges or case.data, NODE, [*e.nodes], []
    )
    assert e.prediction == pytest.approx(truth.prediction, abs=tolerance)
    assert e.nodes == pytest.approx(truth.nodes, abs=tolerance), e.certificate.line()


# --- features ------------------------------------------------------------------------------


def feature_scores(case: Case, groups: list[list[int]], other: Tensor, off: set[int]) -> Tensor:
    """Scores of the isolated node with some features (groups of columns) switched off."""
    data = cut(case.data, {*range(case.data.num_nodes)} - {NODE})
    flat = data.x.clone().reshape(data.num_nodes, -1)
    for feature in off:
        flat[NODE, groups[feature]] = other[groups[feature]].to(flat.dtype)
    data.x = flat.reshape(data.x.shape)
    return scores(case, data)


@pytest.mark.parametrize(
    ("name", "groups", "other"),
    [
        ("one_number_a_node", [[0]], lambda x: x.mean()[None]),
        ("time_series", [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]], lambda x: x.reshape(8, -1).mean(0)),
        ("integer_features", [[0], [1]], lambda x: x.mode(0).values),
    ],
)
def test_features_of_every_shape_play(name: str, groups: list[list[int]], other: Any) -> None:
    case = CASES[name]()
    e = explain(case.model, case.data, node=NODE, method=GraphSVX(features="all", samples=4000))
    players = e.feature_ids.tolist()
    assert players == list(range(len(groups)))
    reference = other(case.data.x)
    truth = shapley_values(
        players,
        lambda on: float(feature_scores(case, groups, reference, {*players} - on)[e.target]),
    )
    assert e.features == pytest.approx(truth, abs=1e-9)


def test_categories_are_switched_off_to_a_given_reference() -> None:
    case = integer_features()
    method = GraphSVX(players="features", features="all", reference=[3, 2])
    e = explain(case.model, case.data, node=NODE, method=method)
    data = case.data.clone()
    data.x[NODE] = torch.tensor([3, 2])
    with torch.no_grad():
        base = case.model(data.x, data.edge_index)[NODE].softmax(-1)
    assert e.base == pytest.approx(float(base[e.target]), abs=1e-9)


def test_edges_play_where_features_are_categories() -> None:
    case = integer_features()
    e = explain(case.model, case.data, node=NODE, method=GraphSVX(players="edges", samples=40))
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


# --- messages ------------------------------------------------------------------------------


def test_a_model_of_graphs_asked_about_a_node() -> None:
    class Pooled(Net):
        def forward(self, x, edge_index, batch):
            return global_mean_pool(self.nodes(x, edge_index), batch)

    with pytest.raises(ModelError, match="graph=True"):
        explain(Pooled(), graph_of(), node=NODE)
    with pytest.raises(ModelError, match="graph=True"):
        explain(graph_model_of_one_row().model, graph_of(), node=NODE)


def test_a_model_of_nodes_asked_about_a_graph() -> None:
    with pytest.raises(ModelError, match="node="):
        explain(Plain(), graph_of(), graph=True)


@pytest.mark.parametrize(
    ("case", "message"),
    [(dictionary_of_outputs, "output=lambda out: out\\['logits'\\]"),
     (tuple_of_outputs, "output=lambda out: out\\[0\\]"),
     (record_of_outputs, "output=lambda out: out.logits")],
)  # fmt: skip
def test_outputs_that_are_no_tensor(case: Callable[[], Case], message: str) -> None:
    made = case()
    with pytest.raises(ModelError, match=message):
        explain(made.model, made.data, node=NODE)


def test_a_model_that_cannot_normalise_a_single_edge() -> None:
    data = Data(x=draws(3, 3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    torch.manual_seed(0)
    model = EdgeCNN(3, 4, 2, 3, norm="instance_norm").double().eval()
    with pytest.raises(ModelError, match=r"players are switched off.*track_running_stats=True"):
        explain(model, data, node=2)
    tracking = EdgeCNN(
        3, 4, 2, 3, norm="instance_norm", norm_kwargs={"track_running_stats": True}
    ).double().eval()  # fmt: skip
    e = explain(tracking, data, node=2)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_arguments_are_checked() -> None:
    case = own_keyword_names()
    for wrong, message in (
        ({"nothing": "x"}, "no parameter 'nothing'"),
        ({"h": "nothing"}, "no 'nothing'"),
        ("h", "must map parameters"),
    ):
        with pytest.raises(InputError, match=message):
            explain(case.model, case.data, node=NODE, arguments=wrong)


def test_a_regression_is_described_by_its_output() -> None:
    case = regression()
    e = explain(case.model, case.data, node=NODE, output="regression")
    assert "output 0" in e.title
    assert "class" not in repr(e) + e.describe() + e.describe("expert")
    with pytest.raises(InputError, match="scale"):
        explain(case.model, case.data, node=NODE, output="regression", scale="logit")


# --- many graphs, and graphs of other kinds ------------------------------------------------


class Pooled(Net):
    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.nodes(x, edge_index), batch)


class InMemory(torch.utils.data.Dataset):
    def __init__(self, graphs: list[Data]) -> None:
        self.graphs = graphs

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, i: int) -> Data:
        return self.graphs[i]


COLLECTIONS: dict[str, Callable[[list[Data]], Any]] = {
    "list": list,
    "batch": Batch.from_data_list,
    "loader": lambda graphs: DataLoader(graphs, batch_size=2),
    "dataset": InMemory,
    "dictionary": lambda graphs: {f"graph {i}": graph for i, graph in enumerate(graphs)},
    "dictionaries": lambda graphs: [graph.to_dict() for graph in graphs],
    "generator": iter,
}


@pytest.mark.parametrize("kind", list(COLLECTIONS))
def test_many_graphs(kind: str) -> None:
    graphs = [graph_of(seed, nodes=5) for seed in range(3)]
    model, method = Pooled(), GraphSVX(samples=40)
    many = list(explain_many(model, COLLECTIONS[kind](graphs), method=method))
    assert [e.graph_index for e in many] == [0, 1, 2]
    for e, graph in zip(many, graphs, strict=True):
        assert e.nodes == explain(model, graph, graph=True, method=method).nodes


def test_a_neighbour_loader_stands_for_its_graph_and_nodes() -> None:
    case = takes_data()
    loader = NodeLoaderOf(case.data, [2, 5])
    many = list(explain_many(case.model, loader))
    assert [e.centres for e in many] == [(2,), (5,)]


def test_a_loader_of_links_stands_for_its_graph_and_links() -> None:
    case = encoder_and_decoder()

    class Sampler(BaseSampler):
        def sample_from_nodes(self, index, **_):
            raise NotImplementedError

        sample_from_edges = sample_from_nodes

    loader = LinkLoader(case.data, Sampler(), edge_label_index=torch.tensor([[1, 0], [4, 2]]))
    assert [e.centres for e in explain_many(case.model, loader)] == [(1, 4), (0, 2)]


def test_a_loader_of_random_parts_stands_for_its_graph() -> None:
    case = takes_data()
    loader = RandomNodeLoader(case.data, num_parts=2)
    assert len(list(explain_many(case.model, loader))) == 8
    assert explain(case.model, loader, node=NODE).nodes == explain(
        case.model, case.data, node=NODE
    ).nodes  # fmt: skip


def test_loaders_of_graphs_and_of_parts_are_told_what_to_do() -> None:
    with pytest.raises(InputError, match="explain_many"):
        explain(Pooled(), DataLoader([graph_of()]), graph=True)
    parts = type("ClusterLoader", (torch.utils.data.DataLoader,), {})
    with pytest.raises(InputError, match="explain nodes of the graph itself"):
        explain_many(Plain(), parts([graph_of()]))


def NodeLoaderOf(data: Data, nodes: list[int]) -> Any:  # noqa: N802  (a loader without a sampler)
    class Sampler(BaseSampler):
        def sample_from_nodes(self, index, **_):
            raise NotImplementedError

        sample_from_edges = sample_from_nodes

    return NodeLoader(data, Sampler(), input_nodes=torch.tensor(nodes))


def people() -> nx.Graph:
    graph = nx.Graph()
    for i, name in enumerate(["ann", "bob", "cid", "dot", "eve"]):
        graph.add_node(name, age=float(20 + i), tall=i % 2, note="text", label=i % 2)
    for u, v in [("ann", "bob"), ("bob", "cid"), ("cid", "dot"), ("dot", "eve"), ("ann", "cid")]:
        graph.add_edge(u, v, weight=1.5)
    return graph


class Weighted(Net):
    def __init__(self) -> None:
        super().__init__(2, layer=GraphConv)
        self.float()

    def forward(self, x, edge_index, edge_weight):
        return self.nodes(x / 10, edge_index, edge_weight)


def test_networkx_graphs_by_their_own_names() -> None:
    model, graph = Weighted(), people()
    e = explain(model, graph, node="cid")
    x = torch.tensor(
        [[graph.nodes[n]["age"], graph.nodes[n]["tall"]] for n in graph], dtype=torch.float
    )
    order = list(graph)
    ends = [(order.index(u), order.index(v)) for u, v in graph.edges]
    edges = torch.tensor(ends + [(v, u) for u, v in ends]).t()
    with torch.no_grad():
        out = model(x, edges, torch.full((edges.shape[1],), 1.5))[2].softmax(-1)
    assert e.prediction == pytest.approx(float(out[e.target]), abs=1e-6)
    assert e.title.startswith("cid:")
    assert {"ann", "bob"} <= {*e.node_credit.names}
    assert {*e.feature_credit.names} <= {"age", "tall"}
    assert [m.title.partition(":")[0] for m in explain_many(model, graph, ["eve", "ann"])] \
        == ["eve", "ann"]  # fmt: skip
    with pytest.raises(InputError, match="no node 'zoe'"):
        explain(model, graph, node="zoe")
    del graph.nodes["dot"]["age"]
    with pytest.raises(InputError, match=r"'age' must be a number.*at 'dot'"):
        explain(model, graph, node="cid")


LABELS = {"ann": 50, "bob": 10, "cid": 0, "dot": 3, "eve": 2}


def test_networkx_numbers_are_labels_and_not_positions() -> None:
    graph = nx.relabel_nodes(people(), LABELS)
    e = explain(Weighted(), graph, node=0)
    assert e.centres == (2,)
    assert e.title.startswith("0:")


def test_links_groups_and_whole_graphs_of_networkx() -> None:
    graph = people()
    assert explain(Weighted(), graph, edge=("ann", "dot")).centres == (0, 3)
    assert explain(Weighted(), graph, nodes=["bob", "eve"]).centres == (1, 4)
    model = Weighted()

    def pooled(x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return model(x, edge_index, edge_weight).mean(0, keepdim=True)

    e = explain(pooled, graph, graph=True)
    assert len(e.nodes) == len(graph)


def test_a_dictionary_is_a_graph() -> None:
    data, model = graph_of(), Plain()
    assert explain(model, data.to_dict(), node=NODE).nodes == explain(model, data, node=NODE).nodes
    arrays = {"x": data.x.numpy(), "edge_index": data.edge_index.numpy()}
    assert explain(model, arrays, node=NODE).nodes == explain(model, data, node=NODE).nodes
    lists = {"x": data.x.tolist(), "edge_index": data.edge_index.tolist()}
    assert explain(Plain().float(), lists, node=NODE).nodes == pytest.approx(
        explain(model, data, node=NODE).nodes, abs=1e-5
    )
    with pytest.raises(InputError, match="edge_index"):
        explain(model, {"x": data.x}, node=NODE)
    with pytest.raises(InputError, match=r"Data\(x=x, edge_index=edge_index\)"):
        explain(model, (data.x, data.edge_index), node=NODE)


# --- names ---------------------------------------------------------------------------------

NODE_NAMES = [f"paper {letter}" for letter in "abcdefgh"]
FEATURE_NAMES = ["neural", "kernel", "bayes"]
CLASS_NAMES = ["cat", "dog", "owl"]


@pytest.fixture(scope="module")
def named() -> Explanation:
    return explain(
        Plain(), graph_of(), node="paper b", target="dog", node_names=NODE_NAMES,
        feature_names=FEATURE_NAMES, class_names=CLASS_NAMES,
        method=GraphSVX(features="all", samples=200),
    )  # fmt: skip


def test_names_are_in_every_view(named: Explanation, tmp_path: Path) -> None:
    assert (named.centres, named.target) == ((1,), 1)
    console = Console(file=io.StringIO(), width=100)
    console.print(named.table())
    page = tmp_path / "page.html"
    named.to_html(page)
    shap = pytest.importorskip("shap") and named.to_shap()
    for text in (named.title, console.file.getvalue(), named.describe(), page.read_text()):
        assert "paper b" in text
        assert "dog" in text
        assert "node 1" not in text
    for text in (
        console.file.getvalue(), page.read_text(), named.describe("expert"),
        " ".join(map(str, shap.feature_names)), repr(named),
    ):  # fmt: skip
        assert any(name in text for name in FEATURE_NAMES)
        assert any(name in text for name in NODE_NAMES)
    again = Explanation.from_dict(json.loads(json.dumps(named.to_dict())))
    assert again.title == named.title
    assert again.node_credit.names == named.node_credit.names


def test_names_are_drawn(named: Explanation) -> None:
    texts = {text.get_text() for text in named.plot().findobj(Text)}
    assert any("paper" in text for text in texts)


def test_names_are_in_networkx_graphs(named: Explanation) -> None:
    graph = named.to_networkx()
    assert graph.nodes[1]["name"] == "paper b"


def test_feature_names_of_a_time_series_are_counted_by_its_last_dimension() -> None:
    case = time_series()
    with pytest.raises(InputError, match="each of the 2 features, got 3"):
        explain(case.model, case.data, node=NODE, feature_names=["a", "b", "c"])


def test_names_are_in_tables_of_runs(named: Explanation) -> None:
    table = arrow_schema.to_table([0], [named])
    assert "paper a" in table.column("node_names")[0].as_py()
    assert arrow_schema.read_row(table, 0).title == named.title


def test_names_come_from_the_data() -> None:
    data = graph_of(node_names=NODE_NAMES, feature_names=FEATURE_NAMES, class_names=CLASS_NAMES)
    e = explain(Plain(), data, node="paper b", target="dog")
    assert e.title == "paper b: dog"


def test_names_are_not_capitalised() -> None:
    e = explain(
        Plain(), graph_of(), node=NODE, node_names=[f"n{i}" for i in range(8)],
        method=GraphSVX(players="nodes", samples=200),
    )  # fmt: skip
    assert not any(f"N{i}" in e.describe() for i in range(8))


def test_class_names_of_nodes_are_not_those_of_links() -> None:
    case = encoder_and_decoder()
    case.data.class_names = CLASS_NAMES
    e = explain(case.model, case.data, edge=LINK)
    assert e.class_names == ("no link", "link")


def test_edges_have_the_names_of_their_ends() -> None:
    method = GraphSVX(players="edges", samples=40)
    e = explain(Plain(), graph_of(), node=NODE, node_names=NODE_NAMES, method=method)
    assert all(name.count("paper") == 2 for name in e.edge_credit.names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"node": "paper q", "node_names": NODE_NAMES},
            "must be one of node_names, got 'paper q'; did you mean",
        ),
        ({"node": "paper b"}, "node_names="),
        ({"node": 1, "target": "dgo", "class_names": CLASS_NAMES}, "did you mean 'dog'"),
        ({"node": 1, "target": "dog"}, "class_names="),
        ({"node": 1, "target": "dog", "class_names": ["dog", "dog", "owl"]}, "twice"),
        ({"node": 1, "node_names": ["a"]}, "each of the 8 nodes"),
        ({"node": 1, "feature_names": ["a"]}, "each of the 3 features"),
        ({"node": "a", "node_names": ["a"] * 8}, "twice"),
    ],
)
def test_wrong_names_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        explain(Plain(), graph_of(), **options)


# --- features of edges ---------------------------------------------------------------------


class Attentive(Net):
    def __init__(self) -> None:
        super().__init__(layer=lambda given, wanted: GATConv(given, wanted, edge_dim=4))

    def forward(self, x, edge_index, edge_attr):
        return self.nodes(x, edge_index, edge_attr)


def pooled(model: nn.Module) -> Callable[..., Tensor]:
    def call(x, edge_index, edge_attr, batch):
        return global_mean_pool(model(x, edge_index, edge_attr), batch)

    return call


@pytest.mark.parametrize("question", [{"node": NODE}, {"graph": True}])
@pytest.mark.parametrize("reference", [None, [0.0, 1.0, 2.0, 3.0]])
def test_columns_of_edge_attr_play(question: dict[str, Any], reference: list[float] | None) -> None:
    data = graph_of(edge_feature_names=["near", "old", "paid", "warm"])
    data.edge_attr = draws(data.num_edges, 4)
    model = Attentive()
    asked = model if "node" in question else pooled(model)
    method = GraphSVX(players="edge_attr", reference=reference)
    e = explain(asked, data, **question, method=method)
    other = data.edge_attr.mean(0) if reference is None else torch.tensor(reference).double()

    def value(on: frozenset[int]) -> float:
        off = [column for column in range(4) if column not in on]
        attr = data.edge_attr.clone()
        attr[:, off] = other[off]
        with torch.no_grad():
            out = model(data.x, data.edge_index, attr)
        row = out[NODE] if "node" in question else out.mean(0)
        return float(row.softmax(-1)[e.target])

    assert e.features == pytest.approx(shapley_values(range(4), value), abs=1e-9)
    assert e.base == pytest.approx(value(frozenset()), abs=1e-9)
    assert e.certificate.exact
    assert e.feature_credit.names == ("near", "old", "paid", "warm")
    assert Explanation.from_dict(e.to_dict()).features == e.features


def test_edge_attr_must_be_there_to_play() -> None:
    with pytest.raises(InputError, match=r"data\.edge_attr"):
        explain(Plain(), graph_of(), node=NODE, method=GraphSVX(players="edge_attr"))
    data = graph_of()
    data.edge_attr = draws(data.num_edges, 4)
    for settings in ({"hops": 1}, {"tolerance": 0.1}, {"reference": [1.0]}):
        with pytest.raises(InputError):
            explain(Attentive(), data, node=NODE,
                    method=GraphSVX(players="edge_attr", **settings))  # fmt: skip


def test_cells_are_in_every_view(tmp_path: Path) -> None:
    method = GraphSVX(players="cells", features="all", samples=200)
    e = explain(
        Plain(), graph_of(), node=NODE, node_names=NODE_NAMES, feature_names=FEATURE_NAMES,
        method=method,
    )  # fmt: skip
    strongest = e.top_cells(1, by="absolute")[0]
    name = (
        f"{FEATURE_NAMES[strongest.feature]} of " if strongest.feature in (0, 1, 2) else "presence"
    )
    assert name in str(e)
    assert name in e.describe()
    table = pytest.importorskip("pandas") and e.to_pandas(players="cells")
    for node, row in table.groupby("node"):
        assert row.credit.sum() == pytest.approx(e.nodes[node], abs=1e-9)
    assert {*FEATURE_NAMES, "presence"} <= {name.split(" of ")[0] for name in table.name}
    columns = {text.get_text() for text in e.plot().findobj(Text)}
    assert {"presence", *FEATURE_NAMES} <= columns
    page = tmp_path / "page.html"
    e.to_html(page)
    assert '"columns":["presence",' in page.read_text()
    loaded = Explanation.from_dict(json.loads(json.dumps(e.to_dict()))).cells
    assert (loaded.nodes, loaded.features, loaded.names) == (
        e.cells.nodes,
        e.cells.features,
        e.cells.names,
    )
    assert torch.equal(loaded.values, e.cells.values)
    assert torch.equal(loaded.errors, e.cells.errors)


# --- edges as players, and PyG's metrics ---------------------------------------------------


def test_edges_are_not_lost_on_the_way_out() -> None:
    model, data = Plain(), graph_of()
    e = explain(model, data, node=NODE, method=GraphSVX(players="edges", samples=100))
    (source, target), value, _ = e.top_edges(1)[0]
    assert e.edges[source, target] == value == max(e.edges.values())
    converted = e.to_pyg(data)
    assert converted.edge_mask.shape == (data.num_edges,)
    assert float(converted.edge_credit.sum()) == pytest.approx(e.total, abs=1e-5)
    shap = pytest.importorskip("shap") and e.to_shap()
    assert float(shap.values.sum()) == pytest.approx(e.total, abs=1e-9)


def test_the_metrics_of_pyg_read_the_masks_as_meant() -> None:
    from torch_geometric.explain import Explainer, unfaithfulness  # noqa: PLC0415  (slow)

    from graphsvx.integrations.pyg import GraphSVXAlgorithm  # noqa: PLC0415  (an optional package)

    model, data = Plain().float(), graph_of()
    data.x = data.x.float()
    explainer = Explainer(
        model,
        algorithm=GraphSVXAlgorithm(GraphSVX(samples=200)),
        explanation_type="model",
        node_mask_type="object",
        model_config={
            "mode": "multiclass_classification", "task_level": "node", "return_type": "raw"
        },
    )  # fmt: skip
    found = [explainer(data.x, data.edge_index, index=node) for node in range(8)]
    assert all(bool(((e.node_mask >= 0) & (e.node_mask <= 1)).all()) for e in found)
    assert sorted(unfaithfulness(explainer, e) for e in found)[4] < 0.5


class _ChangesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = GraphConv(3, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x.mul_(0.5), edge_index)


def test_a_model_that_changes_its_input_does_not_change_the_users_data() -> None:
    torch.manual_seed(0)
    model = _ChangesItsInput().double().eval()
    x = torch.randn(5, 3, dtype=torch.float64)
    data = Data(x=x.clone(), edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 0, 0, 3]]))
    explanation = explain(model, data, node=0, output="class")
    assert torch.equal(data.x, x)
    with torch.no_grad():
        expected = model(x.clone(), data.edge_index)[0].softmax(-1)
    assert explanation.prediction == pytest.approx(float(expected[explanation.target]), abs=1e-12)
    assert torch.equal(data.x, x)
