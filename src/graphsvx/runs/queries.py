"""What the queries of a run are: nodes, groups of nodes, links or whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_geometric.data import Dataset, HeteroData

from graphsvx.core.arrays import Ids
from graphsvx.core.data import check_graph, check_graph_of, is_typed
from graphsvx.core.names import find_names
from graphsvx.core.query import node_list, nodes_of_one_type
from graphsvx.core.types import node_number
from graphsvx.errors import InputError
from graphsvx.many import QuestionKind
from graphsvx.runs import identity
from graphsvx.utils.constraints import shown


@dataclass(frozen=True, eq=False)
class Queries:
    """What a run asks."""

    kind: QuestionKind
    ids: Ids
    """Node ids or positions of graphs, ascending, or positions in `members`."""
    members: Sequence[Any] = ()
    """Links and groups, as `explain` takes them."""
    node_type: str | None = None
    """HeteroData: the type of the nodes."""
    numbers: Sequence[Sequence[int]] = ()
    """The nodes of each link or group, of HeteroData one type after the other."""

    def identity(self) -> dict[str, Any]:
        """Hashes by which they are known again."""
        return {
            "kind": self.kind,
            "count": len(self.ids),
            "sha256": identity.of_queries(self.ids),
            **({} if self.node_type is None else {"node type": self.node_type}),
            **({"members": identity.of_members(self.numbers)} if self.numbers else {}),
        }


def read_queries(model: Callable[..., Any], data: Any, **selectors: Any) -> Queries:
    """The queries of a run as its user names them; an InputError if they are none.

    Args:
        model: the explained model.
        data: one graph, or a list of graphs.
        selectors: at most one of nodes, graphs, edges and groups.

    """
    named = [name for name, value in selectors.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"a run explains one kind of query, got {' and '.join(named)}")
    is_list = isinstance(data, (list, tuple, Dataset))
    argument = named[0] if named else "graphs" if is_list else "nodes"
    selected = selectors[argument]
    if is_list and argument != "graphs":
        advice = "use graphs=, not nodes=" if argument == "nodes" else f"leave out {argument}="
        raise InputError(f"a list of graphs is explained as whole graphs; {advice}")
    if argument == "graphs" and not is_list:
        raise InputError("graphs= chooses from a list of graphs, but data is one graph")
    if argument in ("edges", "groups"):
        return _members(model, data, argument, selected)
    if is_list:
        return Queries("graph", _ascending(selected, len(data), argument))
    if not is_typed(model, data):
        return Queries("node", _ascending(selected, check_graph(data).num_nodes, argument))
    node_type, selected, count = nodes_of_one_type(data, selected)
    return Queries("node", _ascending(selected, count, argument), node_type=node_type)


def _members(model: Callable[..., Any], data: Any, argument: str, listed: Any) -> Queries:
    """Links or groups of nodes."""
    graph = check_graph_of(model, data)
    count = graph.num_nodes
    if hasattr(listed, "tolist"):  # a tensor or an array
        listed = listed.tolist()
    if not isinstance(listed, (list, tuple)) or not listed:
        raise InputError(f"{argument} must be a list of lists of nodes, got {shown(listed)}")
    entry = f"each of {argument}"
    if not graph.types.flat:
        listed = [[node_number(graph.types, node, entry) for node in nodes] for nodes in listed]
    elif graph.has_types:
        listed = map(find_names(data).node_group, listed)
    numbers = [node_list(nodes, count, entry) for nodes in listed]
    for nodes in numbers:
        if not nodes or not 0 <= min(nodes) <= max(nodes) < count:
            raise InputError(
                f"{argument} must name nodes from 0 to {count - 1}, got {shown(nodes)}"
            )
        if len(set(nodes)) < len(nodes) or (argument == "edges" and len(nodes) != 2):
            expected = "pairs of two different nodes" if argument == "edges" else "each node once"
            raise InputError(f"{argument} must name {expected}, got {shown(nodes)}")
    typed = isinstance(data, HeteroData)
    members = [[*map(graph.types.named, nodes)] if typed else nodes for nodes in numbers]
    positions = np.arange(len(members), dtype=np.int64)
    if argument == "groups":
        return Queries("nodes", positions, members, numbers=numbers)
    return Queries("edge", positions, [*map(tuple, members)], numbers=numbers)


def _ascending(selected: Any, count: int, argument: str) -> Ids:
    """Ids or positions below `count`, each once; None: all of them."""
    numbers = range(count) if selected is None else node_list(selected, count, argument)
    if not len(numbers):
        raise InputError(f"{argument} must name at least one, got none")
    wrong = next((item for item in (min(numbers), max(numbers)) if not 0 <= item < count), None)
    if wrong is not None:
        raise InputError(f"{argument} must be from 0 to {count - 1}, got {wrong}")
    ids, times = np.unique(np.asarray(numbers, dtype=np.int64), return_counts=True)
    if (times > 1).any():
        raise InputError(f"{argument} must name each one once, got {ids[times > 1][0]} twice")
    return ids
