"""Heat map of cells: which feature of which node (`players="cells"`)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from graphsvx.results.cell_table import cell_table
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import scale_of, signed
from graphsvx.utils.constraints import checks_arguments
from graphsvx.views import palette
from graphsvx.views.plot import canvas


@checks_arguments
def cell_heatmap(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    features: canvas.Top = 12,
    title: bool = True,
) -> Axes:
    """Matrix of the credit of features of nodes: rows are nodes, columns presence and features.

    The first row is the explained node's own features. Columns are the `features` with the largest
    credit; all others of a node are summed in the last one. Cells whose interval holds 0 are pale
    and without a number; a node has no cell where the square is empty.

    Raises:
        InputError: no cells play; explain with `players="cells"`.

    """
    table = cell_table(explanation, features)
    values, sure = table.values, table.sure
    largest = table.largest
    rows, columns = values.shape
    ax = canvas.axes(ax, 2.6 + 0.5 * columns, 1.7 + 0.3 * rows)
    shown = np.where(sure, values, 0.15 * values)
    image = ax.imshow(
        shown, cmap=canvas.DIVERGING, vmin=-largest, vmax=largest, aspect="auto", gid="cells"
    )
    for i, j in zip(*np.nonzero(sure & (np.abs(values) >= 0.1 * largest)), strict=True):
        fill = palette.of_credit(float(values[i, j]), largest)
        canvas.text(
            ax, float(j), float(i), signed(float(values[i, j]), 2 if largest >= 0.1 else 3),
            ha="center", va="center", fontsize=canvas.TINY, color=palette.ink_on(fill),
        )  # fmt: skip
    ax.set_facecolor("#FFFFFF")
    canvas.matrix(
        ax, image, [canvas.short(name, 22) for name in table.row_names],
        [canvas.short(name, 18) for name in table.column_names],
        f"credit ({scale_of(explanation)})",
    )  # fmt: skip
    ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#FFFFFF", lw=1.5)
    ax.tick_params(which="minor", length=0)
    if title:
        canvas.heading(ax, explanation.title)
    return ax
