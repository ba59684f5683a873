"""
What players do together
========================

Which atoms of a molecule act together, and which of them are enough? The same for a node.
"""

# %%
# Aspirin, and a model that says whether a molecule has a carbonyl. ``order=2`` asks for
# interactions of pairs as well: k-SII, which together with the atoms' own values adds up to the
# prediction. An atom that is off has no bonds and no features (``erase=True``).

import graphsvx
from graphsvx import GraphSVX
from graphsvx_lab import zoo

trained = zoo.ensure("molecules-carbonyl")
names = trained.dataset.class_names
molecule = next(graph for graph in trained.dataset.graphs if graph.name == "aspirin")
explanation = graphsvx.explain(
    trained.model, molecule, graph=True, class_names=names, method=GraphSVX(order=2, erase=True)
)
for pair in explanation.together(3):
    print(" and ".join(pair.players), f"together {pair.value:+.3f}")

# %%
# Every coalition of the molecule is a look-up of its atoms' embeddings, so the values are exact
# for the cost of far fewer model calls than there are coalitions.

print(explanation.certificate.line())
print(explanation.certificate.games[0].coalitions, "coalitions")

# %%
# Curves join the atoms that act together: red adds to the prediction, blue takes away.

from graphsvx_lab.datasets.molecules import ATOMS

symbols = [ATOMS[i] for i in molecule.x[:, : len(ATOMS)].argmax(1).tolist()]
explanation.plot(kind="graph", atoms=symbols)

# %%
# All pairs at once.

explanation.plot(kind="heatmap")

# %%
# Answers in sets. The smallest set of atoms that alone keeps 90 % of the probability, and the
# smallest whose removal changes the class; all smaller sets were tried, and the model itself was
# asked about the answer.

print(explanation.sufficient(0.9).line())
print(explanation.flip().line())

# %%
# A node of a house motif: which of its neighbours act together, and which are enough?

houses = zoo.ensure("ba-shapes")
around = graphsvx.explain(
    houses.model,
    houses.dataset.graph,
    node=400,
    class_names=houses.dataset.class_names,
    method=GraphSVX(players="nodes", order=2),
)
print(around.describe())
print(around.sufficient("class").line())
print(around.flip().line())

# %%
# The same as a network, and as shapiq's own object for its plots: ``around.to_shapiq()``.

around.plot(kind="network")
