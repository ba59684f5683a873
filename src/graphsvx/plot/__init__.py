"""Pictures of explanations, for paper and notebook (needs the `plot` extra).

Every function draws on the given `ax`, or on a new one, and returns it. Nothing is read from or
written to global random state; the same seed gives the same picture.
"""

from __future__ import annotations

from graphsvx.extras import package

package("matplotlib", "plot")

from graphsvx.plot.bars import bars, waterfall  # noqa: E402  (after the check that says what is missing)
from graphsvx.plot.choose import explanation, figure, save  # noqa: E402
from graphsvx.plot.graph import graph  # noqa: E402
from graphsvx.plot.many import beeswarm, heatmap, share  # noqa: E402
from graphsvx.plot.study import convergence, noise_kde  # noqa: E402

__all__ = [
    "bars",
    "beeswarm",
    "convergence",
    "explanation",
    "figure",
    "graph",
    "heatmap",
    "noise_kde",
    "save",
    "share",
    "waterfall",
]
