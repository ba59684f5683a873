"""What is explained, in words: titles, and labels of nodes and links."""

from __future__ import annotations

from graphsvx.core.typed_graph import relation_labels
from graphsvx.results.record import ExplanationRecord
from graphsvx.utils.printable import one_line


def title(explanation: ExplanationRecord) -> str:
    """The explained node, nodes, link or graph and the output, such as "node 7: class 2"."""
    field, centres = explanation.field, explanation.centres
    plain_edge = explanation.types is None and field.names is None
    subject = {
        "node": node_label(explanation, centres[0]) if centres else "node",
        "nodes": f"{len(centres)} {_node_word(explanation)}",
        "graph": one_line(explanation.graph_name or "graph"),
        "edge": f"edge {centres}" if plain_edge else link_label(explanation),
        "model": "model",
    }[explanation.kind]
    name = explanation.class_name(explanation.target)
    if explanation.rather_than is not None:
        name += f" rather than {explanation.class_name(explanation.rather_than)}"
    return f"{subject}: {name}"


def node_label(explanation: ExplanationRecord, node: int) -> str:
    """A node of the receptive field in words: its name, or its type and id."""
    field, types = explanation.field, explanation.types
    if types is None or field.names is not None:
        return field.name(node)
    at = (field.ids == node).nonzero()
    return one_line(types.labels[int(at[0, 0])]) if len(at) else f"node {node}"


def link_label(explanation: ExplanationRecord) -> str:
    """An explained link in words."""
    field, types = explanation.field, explanation.types
    if types is None:
        name = str if field.names is None else field.name
        return f"edge {'–'.join(map(name, explanation.centres))}"
    relation = "" if types.relation is None else relation_labels(types.edge_types)[types.relation]
    arrow = f" –{relation}→ " if relation else " → "
    return f"link {arrow.join(node_label(explanation, node) for node in explanation.centres)}"


def _node_word(explanation: ExplanationRecord) -> str:
    types = explanation.types
    if types is None or types.flat or not explanation.centres:
        return "nodes"
    return f"{types.node(explanation.centres[0])[0]} nodes"
