"""Names of nodes and features in an explanation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from graphsvx.core.names import Names
from graphsvx.results.cells import NO_FEATURES
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation


def with_names(explanation: Explanation, names: Names) -> Explanation:
    """The explanation with names of its graph, nodes, features and edges, where there are any.

    Groups keep the names that they were given.
    """
    field, nodes, features = explanation.field, names.nodes, names.features
    changed = explanation
    if names.graph is not None and explanation.kind == "graph":
        changed = replace(changed, graph_name=names.graph)
    if features is not None and explanation.feature_credit.players:
        columns = features
        changed = replace(changed, feature_credit=_named(
            changed.feature_credit, "feature", lambda column: columns[column % len(columns)]
        ))  # fmt: skip
    if features is not None and changed.cells is not None:
        columns = features
        changed = replace(changed, cells=replace(changed.cells, names=tuple(
            NO_FEATURES[column] if column in NO_FEATURES else columns[column % len(columns)]
            for column in changed.cells.features
        )))  # fmt: skip
    if nodes is None:
        return changed
    return replace(
        changed,
        node_credit=_named(changed.node_credit, "node", nodes.__getitem__),
        edge_credit=_named_edges(changed.edge_credit, nodes.__getitem__),
        field=replace(field, names=tuple(nodes[node] for node in field.ids.tolist())),
    )


def _named(credit: Credit, item: str, name: Callable[[int], str]) -> Credit:
    ids = credit.ids.tolist()
    before = credit.names or tuple(f"{item} {player}" for player in ids)
    return replace(credit, names=tuple(
        name(player) if current == f"{item} {player}" else current
        for player, current in zip(ids, before, strict=True)
    ))  # fmt: skip


def _named_edges(credit: Credit, name: Callable[[int], str]) -> Credit:
    ends: Tensor = credit.ids.reshape(2, -1).t()
    plain = [f"edge {u}–{v}" for u, v in ends.tolist()]
    before = credit.names or tuple(plain)
    return replace(credit, names=tuple(
        f"{name(u)}–{name(v)}" if current in (plain_name, f"edge {v}–{u}") else current
        for (u, v), plain_name, current in zip(ends.tolist(), plain, before, strict=True)
    ))  # fmt: skip
