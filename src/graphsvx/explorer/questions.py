"""Requests as records: the query string of a URL, checked, within the limits of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from graphsvx.core.types import Types
from graphsvx.errors import InputError
from graphsvx.methods import registry
from graphsvx.utils.constraints import Checked, Count, Positive, Range

if TYPE_CHECKING:
    from graphsvx.explorer.workspace import Workspace

Kind = Literal["node", "link", "graph"]
Players = Literal["both", "nodes", "edges", "features", "relations"]
LEFT_OUT = ("xgnn", "pgexplainer")
"""Methods that are trained before they explain, or explain no single prediction."""


def method_names(typed: bool) -> tuple[str, ...]:
    """Names of the methods that can be asked for; of those that explain typed graphs."""
    names = [name for name in registry.names() if name not in LEFT_OUT]
    if typed:
        names = [name for name in names if registry.find("method", name).explains_typed_graphs]
    return tuple(names)


class Parameters:
    """The parameters of a query string; each may occur once, and all must be known."""

    def __init__(
        self, pairs: Iterable[tuple[str, str]], place: Mapping[str, Any] | None = None
    ) -> None:
        self.place = place or {}
        """Parts of the path."""
        self._values: dict[str, str] = {}
        self._read: set[str] = set()
        for name, value in pairs:
            if name in self._values:
                raise InputError(f"{name[:40]!r} is given twice")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """The parameter as text; None if it is missing or empty."""
        self._read.add(name)
        return self._values.get(name) or None

    def integer(self, name: str, low: int, high: int) -> int | None:
        """The parameter as an integer from `low` to `high`."""
        text = self.text(name)
        return None if text is None else _integer(text, name, low, high)

    def number(self, name: str) -> float | None:
        """The parameter as a finite number."""
        text = self.text(name)
        return None if text is None else _number(text, name)

    def choice(self, name: str, names: Iterable[str]) -> str | None:
        """The parameter as one of several names."""
        text, allowed = self.text(name), tuple(names)
        if text is not None and text not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}, got {text[:60]!r}")
        return text

    def items(self, name: str) -> list[str]:
        """The parameter as items that are separated by commas."""
        text = self.text(name)
        return [] if text is None else text.split(",")

    def finish(self) -> None:
        """Refuse parameters that were not read."""
        unknown = sorted(set(self._values) - self._read)
        if unknown:
            raise InputError(
                f"unknown parameter {unknown[0][:40]!r}; this takes {', '.join(sorted(self._read))}"
            )


def _integer(text: str, name: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise InputError(f"{name} must be an integer, got {text[:40]!r}")
    value = int(text)
    if not low <= value <= high:
        raise InputError(f"{name} must be from {low} to {high}, got {value}")
    return value


def _number(text: str, name: str) -> float:
    try:
        value = float(text) if len(text) < 40 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e30:
        raise InputError(f"{name} must be a finite number, got {text[:40]!r}")
    return value


@dataclass(frozen=True)
class Question:
    """An explanation that is asked for."""

    kind: Kind
    which: tuple[int, ...]
    """The node, the two ends of the link, or the position of the graph; nodes of typed graphs by
    their numbers over all types."""
    model: str
    method: str = "graphsvx"
    samples: int | None = None
    players: Players | None = None
    order: int | None = None
    """Largest sets of players whose interactions are computed."""
    seed: int = 0
    target: int | None = None
    rather_than: int | None = None
    relation: int | None = None
    """Links of relational models: the relation that is scored."""
    stored: bool = False
    """Take the explanation of the run instead of computing one."""

    @property
    def graph(self) -> int:
        """Position of the graph that is asked about."""
        return self.which[0] if self.kind == "graph" else 0


def read_question(parameters: Parameters, workspace: Workspace, limits: Limits) -> Question:
    """The question in a query string."""
    kind, ids = _read_which(parameters, workspace)
    stored = parameters.choice("source", ("run", "model")) == "run"
    if workspace.run is None and stored:
        raise InputError("source=run needs a run; start with: graphsvx serve FOLDER")
    question = Question(
        kind=kind,
        which=ids,
        model=parameters.choice("model", workspace.models) or workspace.default_model,
        method=parameters.choice("method", method_names(workspace.typed)) or "graphsvx",
        samples=parameters.integer("samples", 2, limits.samples),
        players=parameters.choice("players", get_args(Players)),  # type: ignore[arg-type]  # one of them
        order=parameters.integer("order", 1, 2),
        seed=parameters.integer("seed", 0, 2**31) or 0,
        target=parameters.integer("target", 0, 10**6),
        rather_than=parameters.integer("rather_than", 0, 10**6),
        relation=parameters.integer("relation", 0, len(workspace.relations) - 1)
        if workspace.relations
        else None,
        stored=stored or not workspace.live,
    )
    if question.rather_than is not None and question.rather_than == question.target:
        raise InputError("rather_than must be another class than target")
    return question


def _read_which(parameters: Parameters, workspace: Workspace) -> tuple[Kind, tuple[int, ...]]:
    if workspace.task == "graph":
        last = (len(workspace.graphs) if workspace.live else 10**9) - 1
        graph = parameters.integer("graph", 0, last)
        if graph is None:
            raise InputError(f"say which graph: graph=0..{last}")
        return "graph", (graph,)
    types, nodes = workspace.types, 10**9
    if workspace.live or types is not None:
        nodes = workspace.checked[0].num_nodes if types is None else int(types.node_starts[-1])
    if workspace.task == "link":
        listed = parameters.items("link")
        ends = [read_node(text, "link", nodes, types) for text in listed]
        if len(ends) != 2 or ends[0] == ends[1]:
            raise InputError("say which link by two different nodes: link=U,V")
        return "link", tuple(ends)
    text = parameters.text("node")
    if text is None:
        first = f"0..{nodes - 1}" if types is None else f"{types.node_types[0]}:0"
        raise InputError(f"say which node: node={first}")
    return "node", (read_node(text, "node", nodes, types),)


def read_node(text: str, name: str, nodes: int, types: Types | None) -> int:
    """A node by its number, or of a typed graph as TYPE:ID."""
    if types is None or text.isdigit():
        return _integer(text, name, 0, nodes - 1)
    kind, _, digits = text.rpartition(":")
    if kind not in types.node_types or not digits.isdigit():
        raise InputError(
            f"a node is written as TYPE:ID, such as {types.node_types[0]}:0, of the types "
            f"{', '.join(types.node_types)}, got {text[:60]!r}"
        )
    return types.number(kind, _integer(digits, kind, 0, types.count(kind) - 1))


@dataclass(frozen=True)
class Changes:
    """What is changed in a graph before the model is asked."""

    nodes_off: tuple[int, ...] = ()
    """Nodes without their edges (Eq. 2)."""
    edges_off: tuple[tuple[int, int], ...] = ()
    """Edges that are removed, in both directions."""
    features_off: tuple[int, ...] = ()
    """Columns that are set to their mean at the explained node(s) (Eq. 1)."""
    values: tuple[tuple[int, int, float], ...] = ()
    """(node, column, value): features that are set."""

    @property
    def count(self) -> int:
        """How many changes there are."""
        return sum(map(len, (self.nodes_off, self.edges_off, self.features_off, self.values)))


def read_changes(
    parameters: Parameters, nodes: int, columns: int, types: Types | None, limits: Limits
) -> Changes:
    """The changes of a what-if question, for a graph of this size."""

    def node(text: str) -> int:
        return read_node(text, "a node", nodes, types)

    def column(text: str) -> int:
        return _integer(text, "a feature", 0, columns - 1)

    def parts(text: str, separator: str, form: str, count: int) -> list[str]:
        split = text.rsplit(separator, count - 1)
        if len(split) != count:
            raise InputError(f"expected {form}, got {text[:40]!r}")
        return split

    edges, values = [], []
    for text in parameters.items("edges_off"):
        u, v = parts(text, "-", "edges_off=U-V,U-V,...", 2)
        edges.append((node(u), node(v)))
    for text in parameters.items("set"):
        # From the right: a node of a typed graph is TYPE:ID.
        at, feature, value = parts(text, ":", "set=NODE:FEATURE:VALUE,...", 3)
        values.append((node(at), column(feature), _number(value, "a value of set")))
    changes = Changes(
        nodes_off=tuple(map(node, parameters.items("nodes_off"))),
        edges_off=tuple(edges),
        features_off=tuple(map(column, parameters.items("features_off"))),
        values=tuple(values),
    )
    if changes.count > limits.changes:
        raise InputError(f"at most {limits.changes} changes at a time, got {changes.count}")
    return changes


@dataclass(frozen=True)
class Limits(Checked):
    """Upper bounds that keep one client from taking the machine away from the others."""

    samples: Count = 20_000
    """Model calls of one explanation."""
    tolerance: Annotated[float, Range(0, inside=True)] = 0.01
    """Refinement stops when the standard errors are this small relative to the credit."""
    waiting: Count = 1000
    """Questions in the queue; further ones are refused (HTTP 503)."""
    connections: Count = 512
    """Open connections; further ones are closed."""
    header_seconds: Positive = 10.0
    """Time for the headers of a request, after which its connection is closed."""
    target: Count = 16_384
    """Bytes of a request's path and query."""
    changes: Count = 2000
    """Nodes, edges and feature values that one what-if question changes."""
    rows: Count = 200
    """Rows of a list in one answer."""
    map_nodes: Count = 20_000
    """Nodes of the largest graph that is drawn as a whole."""
    map_edges: Count = 200_000
    """Edges of the largest graph that is drawn as a whole."""
    cached: Count = 256
    """Explanations that are kept in memory."""
    outputs: Count = 32
    """Models with more outputs are explained for one output at a time."""
