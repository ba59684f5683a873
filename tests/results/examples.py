"""One explanation of each method, kind of question and setting that adds something to a record."""

from __future__ import annotations

from functools import cache

import torch
from torch_geometric.data import Data

from graphsvx import Explanation, GraphSVX, explain, explain_many
from graphsvx.estimators import Lasso
from graphsvx.methods import LIME, SHAP, Greedy, IntegratedGradients, PGMExplainer, Random, Saliency
from graphsvx.methods.learned import GNNExplainer, PGExplainer
from graphsvx.methods.surrogates import GraphLIME
from graphsvx.methods.xgnn import XGNN
from tests.methods.conftest import KnownGraph, both_ways, hand_set
from tests.worlds import random_graph, random_model

FEW = {"samples": 40}


@cache
def explanations() -> dict[str, Explanation]:
    """By a name for each."""
    model, data = random_model("gcn", 1), random_graph(1)
    data.y = torch.arange(data.num_nodes) % 3
    examples = {
        "exact": explain(model, data, node=1, targets="all", class_names=("a", "b", "c")),
        "paper": explain(model, data, node=1, method=GraphSVX.paper(samples=40)),
        "nodes": explain(model, data, nodes=[1, 4], method=GraphSVX(**FEW)),
        "link": explain(model, data, edge=(1, 2), method=GraphSVX(**FEW)),
        "contrast": explain(model, data, node=1, targets="all").contrast(0, 2),
        "edges": explain(model, data, node=1, method=GraphSVX(players="edges", **FEW)),
        "groups": explain(
            model, data, node=1,
            method=GraphSVX(groups={"a": [2, 3], "b": [4]}, feature_groups={"f": [0, 2]}),
        ),
        "reference node": explain(model, data, node=1, method=GraphSVX(reference=3)),
        "reference class": explain(model, data, node=1, method=GraphSVX(reference="class:1")),
        "reference vector": explain(
            model, data, node=1, method=GraphSVX(reference=(0.0, 0.5, 1.0)), scale="log_odds"
        ),
        "balance": explain(model, data, node=1, method=GraphSVX(balance=0.7)),
        "lasso": explain(model, data, node=1, method=GraphSVX(estimator=Lasso(k=2))),
        "tolerance": explain(model, data, node=1, method=GraphSVX(tolerance=0.5)),
    }  # fmt: skip
    known, near = hand_set()
    trained = PGExplainer(epochs=2).fit(known, near, nodes=[0, 3])
    methods = (GNNExplainer(epochs=3), GraphLIME(), Greedy(), IntegratedGradients(steps=3),
               LIME(), trained, PGMExplainer(samples=60), Random(), Saliency(), SHAP())  # fmt: skip
    for method in methods:
        examples[type(method).__name__] = explain(known, near, node=0, method=method)
    torch.manual_seed(1)
    rings = [Data(x=torch.rand(count, 4), edge_index=both_ways([(i, (i + 1) % count)
             for i in range(count)])) for count in (4, 6)]  # fmt: skip
    pooled = KnownGraph().eval()
    examples["graph"] = next(
        e for e in explain_many(pooled, rings, method=GraphSVX(**FEW)) if len(e.nodes) == 6
    )
    grow = XGNN(candidates=((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)), steps=3, nodes=4,
                episodes=2, rollouts=1, tries=2)  # fmt: skip
    examples["XGNN"] = explain(pooled, rings[0], graph=True, target=1, method=grow)
    return examples
