"""
A typed graph: women and the events that they attended
======================================================

In the 1930s, Davis, Gardner and Gardner noted which of 18 women of a Southern town came to which of
14 social events, and found two groups. Which events make a model say to which group a woman
belongs, and do the women whom she met there matter?
"""

# %%
# The graph is a ``HeteroData`` with two types of nodes. ``zoo.ensure`` trains a model with a
# convolution for each edge type; any model of ``(x_dict, edge_index_dict)`` takes its place.

import tempfile
from pathlib import Path

import graphsvx
from graphsvx import GraphSVX
from graphsvx_lab import zoo

trained = zoo.ensure("southern-women")
data, model = trained.dataset.graph, trained.model
names = trained.dataset.class_names
print(data)

# %%
# Ruth DeSand was counted to both groups, so the model has never seen a label for her. A node is its
# type and its id. Colour and shape in the picture are the type of a node, the ring is its credit.

woman = ("woman", data["woman"].names.index("Ruth DeSand"))
explanation = graphsvx.explain(
    model, data, node=woman, class_names=names, method=GraphSVX(players="nodes")
)
print(explanation.describe())
print(explanation.certificate.line())
print(explanation.by_type())
explanation.plot()

# %%
# Other women have no credit: they have no features of their own, so the model cannot tell who was
# there. The credit of one type, with ids within the type and standard errors:

events = explanation.nodes["event"]
for i, value, error in zip(events.ids.tolist(), events.values, events.errors, strict=True):
    print(f"{data['event'].names[i]}: {value:+.4f} ± {1.96 * error:.4f}")

# %%
# Relations: all edges of a type and their reverse are one player, and the values are exact. ACM,
# with papers, authors and subjects, has more of them, and meta-paths: :doc:`full_size/2_acm`.

relations = graphsvx.explain(
    model, data, node=woman, class_names=names, method=GraphSVX(players="relations")
)
for edge_type, credit in relations.by_relation().items():
    print(edge_type, f"{credit:+.3f}")

# %%
# A page in one file, and masks for PyG.

explanation.to_html(Path(tempfile.mkdtemp()) / "why.html")
print(explanation.to_pyg())
