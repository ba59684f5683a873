"""The explanation: a frozen record of the credit of each player, with standard errors."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from graphsvx.results import describe, export, serialize
from graphsvx.results.credit import Credit, Ranking, is_sure, ranked
from graphsvx.results.details import FieldRecord
from graphsvx.results.record import ExplanationRecord

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from rich.table import Table

__all__ = ["Credit", "Explanation", "FieldRecord", "Ranking"]


def view(name: Literal["table", "printed", "plotted", "write", "notebook"]) -> Any:
    """A function of `graphsvx.views`, which is built on explanations and imported when needed."""
    return getattr(importlib.import_module("graphsvx.views"), name)


@dataclass(frozen=True, eq=False)
class Explanation(ExplanationRecord):
    """Why the model said that: `base + total == prediction`, shared out among the players.

    The arrays hold every explained output (one row, or one a class with `targets="all"`); the
    properties are about the one chosen by `target`.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON; `from_dict` gives the same bits back."""
        return serialize.to_dict(self)

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Explanation:
        """The inverse of `to_dict`."""
        return serialize.from_dict(record, Explanation)

    def save(self, path: str | Path) -> None:
        """Write a versioned JSON file."""
        serialize.write_file(self, path)

    @staticmethod
    def load(path: str | Path) -> Explanation:
        """Read a file written by `save`."""
        return serialize.read_file(path, Explanation)

    def to_pandas(
        self, players: Literal["all", "nodes", "features", "edges", "cells"] = "all"
    ) -> Any:
        """A `pandas.DataFrame` with a row per player, or per cell with "cells" (needs pandas)."""
        return export.to_pandas(self, players)

    def to_networkx(self) -> nx.DiGraph:
        """The neighbourhood as a directed graph with credit on nodes, and on edges that play."""
        return export.to_networkx(self)

    def to_pyg(self, data: Any = None) -> Any:
        """A `torch_geometric.explain.Explanation` with masks over nodes and edges, for PyG's plots.

        Masks are by the size of the credit; `node_credit`, `edge_credit` and `feature_credit` are
        signed. Where nodes play, `edge_mask` is the credit of nodes, carried by their edges. With
        `data` (the graph that was explained) masks of edges go along its `edge_index`.
        """
        return export.to_pyg(self, data)

    def to_captum(self, data: Any) -> tuple[Tensor, Tensor]:
        """Attributions as captum gives them: of x [1, nodes, features] and of edges [1, edges]."""
        return export.to_captum(self, data)

    def to_shap(self, data: Any = None) -> Any:
        """A `shap.Explanation`, for shap's own plots (needs shap).

        It has the values of the features if the model is at hand (`question`), or with `data`, the
        graph that was explained.
        """
        return export.to_shap(self, data)

    def to_shapiq(self) -> Any:
        """A `shapiq.InteractionValues` of the target, for shapiq's own plots (needs shapiq)."""
        return export.to_shapiq(self)

    def to_shapiq_game(self) -> Any:
        """The explained game of nodes (edges, features) as a `shapiq.Game` (needs shapiq)."""
        return export.to_shapiq_game(self)

    def from_shapiq(self, values: Any) -> Explanation:
        """This explanation with the interactions of a `shapiq.InteractionValues`."""
        return export.from_shapiq(self, values)

    def table(self, top: int = 10) -> Table:
        """A rich table of the players with the most absolute credit."""
        return view("table")(self, top)

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw it: the explanation graph where nodes or edges play, bars otherwise."""
        return view("plotted")(self, ax=ax, **options)

    def describe(self, audience: Literal["everyone", "expert"] = "everyone") -> str:
        """Two or three plain sentences, or with `audience="expert"` the complete account."""
        return describe.describe(self, audience)

    def to_html(self, path: str | Path, data: Any = None) -> None:
        """Write a report in one file that opens offline, with everything there is to see.

        With `data` (the graph that was explained) a click on a node shows its features too.
        """
        view("write")([self], path, data=data)

    def _repr_html_(self) -> str:
        return view("notebook")(self)

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        """The table as text; its caption is the equation prediction = base + credit."""
        text: str = view("printed")(self)
        return text

    def __repr__(self) -> str:
        parts = [f"Explanation({self.title}"]
        parts += [f"prediction={self.prediction:.4f}", f"base={self.base:.4f}"]
        for kind in ("node", "feature", "edge"):
            credit = self.credit_by_kind[kind]
            values, errors = credit.values[self.row].tolist(), credit.errors[self.row].tolist()
            order = ranked(credit.values[self.row], None, "absolute")
            sure = [i for i in order if is_sure(values[i], errors[i])][:3]
            players = ", ".join(f"{credit.label(i)}: {values[i]:+.3f}" for i in sure)
            if credit.players:
                parts.append(f"{kind}s({credit.players})={{{players}}}")
        return ", ".join([*parts, self.certificate.status]) + ")"
