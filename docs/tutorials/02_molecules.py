"""
A molecule: which atoms make the model say that?
================================================

The class of a molecule hangs on some of its atoms: does it have a carbonyl, a carbon with a double
bond to an oxygen? Does the model look at those atoms?
"""

# %%
# 505 well-known drugs, solvents, dyes and natural products with the truth for each atom, and a
# trained graph classifier (RDKit reads the molecules: it is the extra ``molecules``). The same at
# full size is ``zoo.ensure("benzene")``: 12,000 molecules that are downloaded at first use.

import torch

import graphsvx
from graphsvx import GraphSVX
from graphsvx_lab import metrics, zoo

trained = zoo.ensure("molecules-carbonyl")
dataset, model = trained.dataset, trained.model
print(f"{len(dataset.graphs)} molecules, test accuracy {trained.card.accuracy['test']:.2f}")

# %%
# The first molecules of the test part that have the motif and that the model classifies right.

chosen = []
for index in dataset.split.test.tolist():
    molecule = dataset.graphs[index]
    with torch.no_grad():
        right = int(model(molecule.x, molecule.edge_index).argmax()) == int(molecule.y)
    if right and int(molecule.y) == 1:
        chosen.append(index)
chosen = chosen[:4] or dataset.split.test.tolist()[:4]

# %%
# Atoms play: an atom that is off has no bonds and no features. ``base`` is the score of a molecule
# without any.

method = GraphSVX(players="nodes", erase=True)
explanations = [
    graphsvx.explain(
        model,
        dataset.graphs[index],
        graph=True,
        target=1,
        method=method,
        class_names=dataset.class_names,
    )
    for index in chosen
]
print(explanations[0].describe())

# %%
# Atoms of the motif are marked by the truth; here is how much of the positive credit they have, and
# how well credit ranks them (AUROC; 0.5 is chance).

for index, explanation in zip(chosen, explanations, strict=True):
    truth = dataset.graph_truth.graph_nodes(index)
    if not truth.any():
        continue
    credit = explanation.node_values.clamp(min=0)
    share = float(credit[truth].sum() / credit.sum())
    area = metrics.auroc(explanation, set(torch.nonzero(truth).flatten().tolist()))
    print(f"{dataset.graphs[index].name}: {share:.0%} of the credit on the motif, AUROC {area:.2f}")

# %%
# The first of them: red atoms speak for the class.

explanations[0].plot()
