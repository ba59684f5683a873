"""Runs: many explanations stored in a folder, resumable, on one machine or on a Ray cluster.

    run = graphsvx.runs.start(model, data, nodes, out="runs/mine", backend=Local(workers=2))
    run = graphsvx.runs.open("runs/mine")
    run.table(); run[42].plot(); run.status(); run.summary()

A run is a model, a data set, a method, a list of queries, and the folder of its results.
"""

from graphsvx.utils.imports import require_extra

require_extra("pyarrow", "data")

from graphsvx.runs.backends import Backend, Local, Ray
from graphsvx.runs.run import Run, Status, start
from graphsvx.runs.run import open_run as open  # read as runs.open

__all__ = ["Backend", "Local", "Ray", "Run", "Status", "open", "start"]
