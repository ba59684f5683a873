"""
Many explanations as a resumable run
====================================

A run explains many nodes (or graphs) into a folder. It can be stopped at any time, goes on where
it was, and its tables are plain Parquet files.
"""

# %%
# Start it. The same call again finds everything done.

import tempfile
from pathlib import Path

from graphsvx import GraphSVX, runs
from graphsvx_lab import zoo

trained = zoo.ensure("ba-shapes")
data, model = trained.dataset.graph, trained.model
folder = Path(tempfile.mkdtemp()) / "run"
run = runs.start(
    model,
    data,
    range(300, 360),
    out=folder,
    method=GraphSVX(samples=300),
    class_names=trained.dataset.class_names,
    progress=False,
)
status = run.status()
print(f"{status.done} of {status.total} done, {status.failed} failed")

# %%
# From the command line: ``graphsvx run ba-shapes --nodes 300-359 --out runs/mine``; on a
# cluster with ``backend=runs.Ray(address=...)``.
#
# One explanation, with everything in it:

run[329].plot()

# %%
# The table with pandas: one row for each question.

table = run.table().to_pandas()
print(table[["target_name", "prediction", "base", "calls"]].head())
print(table.groupby("target_name")["prediction"].agg(["count", "mean"]))

# %%
# What mattered on the whole: credit by distance from the explained node.

for line in run.summary().roles.top(4):
    print(f"{line.name}: {line.mean:+.3f} on average")

# %%
# The Parquet files need no graphsvx at all. With DuckDB:

import duckdb

query = f"""
    SELECT target_name, count(*) AS nodes, avg(prediction) AS prediction, avg(calls) AS calls
    FROM '{folder / "parts"}/*.parquet' WHERE error IS NULL GROUP BY 1 ORDER BY 2 DESC"""
print(duckdb.sql(query))
