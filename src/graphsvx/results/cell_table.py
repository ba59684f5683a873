"""Cells of an explanation as a matrix: rows are nodes, columns features and what has none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphsvx.core.arrays import Floats
from graphsvx.errors import InputError
from graphsvx.results.cells import NO_FEATURES, OTHER_FEATURES
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import entries


@dataclass(frozen=True, eq=False)
class CellTable:
    """Credit of features of nodes; NaN where a node has no cell for the feature."""

    nodes: tuple[int, ...]
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    values: Floats
    """[nodes, columns]."""
    errors: Floats
    """Standard errors [nodes, columns]; 0: exact."""

    @property
    def largest(self) -> float:
        """The largest absolute credit of a single feature or of presence; 1 if there is none."""
        single = [name != NO_FEATURES[OTHER_FEATURES] for name in self.column_names]
        values = self.values[:, single] if any(single) else self.values
        return float(np.nanmax(np.abs(values), initial=0.0)) or 1.0

    @property
    def sure(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether a cell's interval does not hold 0, [nodes, columns]."""
        return np.asarray(~(np.abs(self.values) < 2 * self.errors))


def cell_table(explanation: Explanation, features: int = 12) -> CellTable:
    """The cells of one output: the explained nodes' own features first, then nodes by credit.

    Columns are presence, then the `features` with the largest share of the credit of any row; all
    other features of a row are summed in the last column.

    Raises:
        InputError: no cells play; explain with `players="cells"`.

    """
    rows: dict[int, dict[str, tuple[float, float]]] = {}
    if explanation.cells is None:
        raise InputError('there are no cells; explain with GraphSVX(players="cells")')
    if explanation.kind == "node" and explanation.feature_credit.players:
        rows[explanation.centres[0]] = {
            entry.name: (entry.credit, entry.error) for entry in entries(explanation, "features")
        }
    for cell in explanation.top_cells(by="absolute"):
        name = explanation.cells.feature_name(cell.feature)
        rows.setdefault(cell.node, {})[name] = (cell.value, cell.error)
    presence, other = NO_FEATURES.values()
    sizes: dict[str, float] = {}
    for row in rows.values():
        named = {n: abs(value) for n, (value, _) in row.items() if n not in (presence, other)}
        largest = max(named.values(), default=0.0) or 1.0
        for name, size in named.items():
            sizes[name] = max(sizes.get(name, 0.0), size / largest)
    columns = sorted(sizes, key=lambda name: -sizes[name])[:features]
    names = [presence, *columns, other]
    shape = (len(rows), len(names))
    values, variances = np.full(shape, np.nan), np.zeros(shape)
    for i, row in enumerate(rows.values()):
        for name, (value, error) in row.items():
            column = names.index(name) if name in columns or name == presence else len(names) - 1
            values[i, column] = value + (0.0 if np.isnan(values[i, column]) else values[i, column])
            variances[i, column] += error**2
    used = ~np.isnan(values).all(0)
    return CellTable(
        tuple(rows),
        tuple(explanation.node_label(node) for node in rows),
        tuple(name for name, keep in zip(names, used, strict=True) if keep),
        values[:, used],
        np.sqrt(variances[:, used]),
    )
