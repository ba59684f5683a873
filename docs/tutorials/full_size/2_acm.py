"""
A typed graph: papers, authors and subjects
===========================================

ACM has three types of nodes and two relations. Which of them make the model say that a paper is
about data mining: its authors, its subject, or the papers that share them?
"""

# %%
# The graph is a ``HeteroData``; subjects have no features but a row each of a table in the model.
# ``zoo.ensure`` trains a model with a convolution for each edge type; any model of
# ``(x_dict, edge_index_dict)`` takes its place.

import tempfile
from pathlib import Path

import graphsvx
from graphsvx import GraphSVX
from graphsvx.methods import MetaPaths
from graphsvx_lab import zoo

trained = zoo.ensure("acm")
data, model = trained.dataset.graph, trained.model
print(data)
print(trained.card.accuracy)

# %%
# A node is its type and its id. First the relations: all edges between papers and authors are one
# player, all edges between papers and subjects another one. The values are exact.

paper = ("paper", 3792)
names = trained.dataset.class_names
relations = graphsvx.explain(
    model, data, node=paper, class_names=names, method=GraphSVX(players="relations")
)
print(relations.describe())
for edge_type, credit in relations.by_relation().items():
    print(edge_type, f"{credit:+.3f}")

# %%
# Single nodes: who among them? Colour and shape are the type of a node, the ring is its credit.

explanation = graphsvx.explain(
    model, data, node=paper, class_names=names, method=GraphSVX(players="nodes", samples=400)
)
print(explanation.certificate.line())
print(explanation.by_type())
explanation.plot()

# %%
# The credit of one type, with ids within the type and standard errors.

authors = explanation.nodes["author"]
for i, value, error in zip(authors.ids.tolist(), authors.values, authors.errors, strict=True):
    print(f"author {i}: {value:+.4f} ± {1.96 * error:.4f}")

# %%
# Meta-paths: other papers of the same authors, and other papers on the same subject.

paths = {
    "same authors": [("paper", "to", "author"), ("author", "to", "paper")],
    "same subject": [("paper", "to", "subject"), ("subject", "to", "paper")],
}
along = graphsvx.explain(
    model, data, node=paper, class_names=names, method=GraphSVX(players=MetaPaths(paths=paths))
)
along.plot(kind="bars")

# %%
# A page in one file, and masks for PyG.

explanation.to_html(Path(tempfile.mkdtemp()) / "why.html")
print(explanation.to_pyg())
