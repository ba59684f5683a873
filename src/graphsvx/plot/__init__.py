"""Pictures of explanations, for paper and notebook (needs the `plot` extra).

Every function draws on the given `ax`, or on a new one, and returns it. Nothing is read from or
written to global random state; the same seed gives the same picture.
"""

from __future__ import annotations

from graphsvx.errors import MissingExtraError

try:
    import matplotlib as _matplotlib
except ImportError as error:
    raise MissingExtraError("matplotlib", "plot") from error

from graphsvx.plot.bars import bars, waterfall
from graphsvx.plot.choose import explanation, figure, save
from graphsvx.plot.graph import graph
from graphsvx.plot.many import beeswarm, heatmap, share
from graphsvx.plot.study import convergence, noise_kde

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

del _matplotlib
