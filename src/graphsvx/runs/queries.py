"""What the queries of a run are: nodes, groups of nodes, links or whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch_geometric.data import Dataset

from graphsvx.core.arrays import Ids
from graphsvx.core.data import check_graph, check_graph_of, is_typed
from graphsvx.core.names import find_names
from graphsvx.core.query import node_list, nodes_of_one_type
from graphsvx.core.types import node_number
from graphsvx.errors import InputError
from graphsvx.utils.constraints import shown

QueryKind = Literal["node", "nodes", "edge", "graph"]


@dataclass(frozen=True, eq=False)
class Queries:
    """What is asked, in order."""

    kind: QueryKind
    ids: Ids
    """Node ids or positions of graphs, ascending; positions in `members`."""
    members: tuple[tuple[int, ...], ...] = ()
    """Links and groups: the nodes of each query, by its position; of HeteroData they are numbered
    one type after the other."""
    node_type: str | None = None
    """HeteroData: the type of the nodes."""


def read_queries(
    model: Callable[..., Any], data: Any, nodes: Any, graphs: Any, edges: Any, groups: Any
) -> Queries:
    """The queries of a run as its user names them; an InputError if they are none."""
    members = _members(model, data, nodes=nodes, graphs=graphs, edges=edges, groups=groups)
    if members:
        kind: QueryKind = "edge" if edges is not None else "nodes"
        return Queries(kind, np.arange(len(members), dtype=np.int64), members)
    node_type = count = None
    if is_typed(model, data):
        node_type, nodes, count = nodes_of_one_type(data, nodes)
    kind, ids = _numbers(data, nodes, graphs, count)
    return Queries(kind, ids, node_type=node_type)


def _members(model: Callable[..., Any], data: Any, **selectors: Any) -> tuple[tuple[int, ...], ...]:
    """Nodes of each link or group; empty if nodes or whole graphs are asked for."""
    named = [name for name, value in selectors.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"a run explains one kind of query, got {' and '.join(named)}")
    if not named or named[0] not in ("edges", "groups"):
        return ()
    argument = named[0]
    if isinstance(data, (list, tuple, Dataset)):
        raise InputError(f"a list of graphs is explained as whole graphs; leave out {argument}=")
    graph = check_graph_of(model, data)
    count = graph.num_nodes
    listed = selectors[argument]
    if isinstance(listed, (Tensor, np.ndarray)):
        listed = listed.tolist()
    if not isinstance(listed, (list, tuple)) or not listed:
        raise InputError(f"{argument} must be a list of lists of nodes, got {shown(listed)}")
    if not graph.types.flat:
        listed = [
            [node_number(graph.types, node, f"each of {argument}") for node in nodes]
            for nodes in listed
        ]
    elif graph.has_types:
        names = find_names(data)
        listed = [names.node_group(nodes) for nodes in listed]
    members = tuple(tuple(node_list(nodes, count, f"each of {argument}")) for nodes in listed)
    for nodes in members:
        if not nodes or not 0 <= min(nodes) <= max(nodes) < count:
            raise InputError(
                f"{argument} must name nodes from 0 to {count - 1}, got {shown(nodes)}"
            )
        if len(set(nodes)) < len(nodes) or (argument == "edges" and len(nodes) != 2):
            expected = "pairs of two different nodes" if argument == "edges" else "each node once"
            raise InputError(f"{argument} must name {expected}, got {shown(nodes)}")
    return members


def _numbers(data: Any, nodes: Any, positions: Any, count: int | None) -> tuple[QueryKind, Ids]:
    """The kind of the queries, and their node ids or graph positions, ascending."""
    is_list = isinstance(data, (list, tuple, Dataset))
    if is_list and nodes is not None:
        raise InputError("a list of graphs is explained as whole graphs; use graphs=, not nodes=")
    if not is_list and positions is not None:
        raise InputError("graphs= chooses from a list of graphs, but data is one graph")
    if count is None:
        count = len(data) if is_list else check_graph(data).num_nodes
    argument = "graphs" if is_list else "nodes"
    ids = positions if is_list else nodes
    numbers = range(count) if ids is None else node_list(ids, count, argument)
    if not len(numbers):
        raise InputError(f"{argument} must name at least one, got none")
    wrong = next((item for item in (min(numbers), max(numbers)) if not 0 <= item < count), None)
    if wrong is not None:
        raise InputError(f"{argument} must be from 0 to {count - 1}, got {wrong}")
    queries = np.sort(np.asarray(numbers, dtype=np.int64))
    if (queries[1:] == queries[:-1]).any():
        twice = int(queries[1:][queries[1:] == queries[:-1]][0])
        raise InputError(f"{argument} must name each one once, got {twice} twice")
    return ("graph" if is_list else "node"), queries
