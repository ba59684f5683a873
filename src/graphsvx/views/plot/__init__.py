"""Matplotlib plots of explanations (needs the `plot` extra).

Every function draws on the given `ax`, or on a new one, and returns it. The global random state
is neither read nor changed; the same seed gives the same plot.
"""

from __future__ import annotations

from graphsvx.utils.extras import require_extra

require_extra("matplotlib", "plot")

from graphsvx.views.plot.bars import bars, waterfall
from graphsvx.views.plot.cells import cell_heatmap
from graphsvx.views.plot.choose import explanation, figure, save
from graphsvx.views.plot.graph import graph
from graphsvx.views.plot.interactions import interaction_heatmap, network
from graphsvx.views.plot.many import beeswarm, heatmap, share
from graphsvx.views.plot.study import convergence, noise_kde

__all__ = [
    "bars",
    "beeswarm",
    "cell_heatmap",
    "convergence",
    "explanation",
    "figure",
    "graph",
    "heatmap",
    "interaction_heatmap",
    "network",
    "noise_kde",
    "save",
    "share",
    "waterfall",
]
