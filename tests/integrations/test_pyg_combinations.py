"""Everything that PyG's own tests ask of GNNExplainer, asked of GraphSVXAlgorithm.

3 task levels x 6 kinds of outputs x 7 pairs of masks x 2 explanation types x 3 indices = 756
combinations. `python -m tests.integrations.test_pyg_combinations` runs all of them; a sample in
which every two choices meet runs in the tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer, Explanation, fidelity, unfaithfulness
from torch_geometric.nn import GCNConv, global_add_pool

from graphsvx.integrations.pyg import GraphSVXAlgorithm

OUTPUTS = (
    ("binary_classification", "raw"), ("binary_classification", "probs"),
    ("multiclass_classification", "raw"), ("multiclass_classification", "probs"),
    ("multiclass_classification", "log_probs"), ("regression", None),
)  # fmt: skip
LEVELS = ("node", "edge", "graph")
MASKS = tuple(
    masks
    for masks in itertools.product(
        (None, "object", "common_attributes", "attributes"), (None, "object")
    )
    if any(masks)
)
TYPES = ("model", "phenomenon")
INDICES = (None, 2, "several")


class Combination(NamedTuple):
    level: str
    outputs: tuple[str, str | None]
    masks: tuple[str | None, str | None]
    type: str
    index: Any


ALL = [Combination(*choice) for choice in itertools.product(LEVELS, OUTPUTS, MASKS, TYPES, INDICES)]


def covering() -> Iterator[Combination]:
    """Combinations, chosen greedily, in which every two choices meet."""
    missing = {pair for combination in ALL for pair in _pairs(combination)}
    while missing:
        best = max(ALL, key=lambda combination: len(missing & _pairs(combination)))
        missing -= _pairs(best)
        yield best


def _pairs(combination: Combination) -> set[Any]:
    return set(itertools.combinations(enumerate(combination), 2))


class Net(nn.Module):
    """Two layers with the head that the configuration asks for."""

    def __init__(self, level: str, outputs: tuple[str, str | None]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.level, self.outputs = level, outputs
        width = 4 if outputs[0] == "multiclass_classification" else 1
        self.first, self.second = GCNConv(3, 6), GCNConv(6, width)

    def forward(self, x, edge_index, batch=None, edge_label_index=None) -> Tensor:
        level, (mode, returns) = self.level, self.outputs
        out = self.second(self.first(x, edge_index).relu(), edge_index)
        if level == "graph":
            out = global_add_pool(out, batch)
        elif level == "edge":
            out = out[edge_label_index[0]] * out[edge_label_index[1]]
        if mode == "binary_classification":
            return out.sigmoid() if returns == "probs" else out
        if returns == "probs":
            return out.softmax(-1)
        return out.log_softmax(-1) if returns == "log_probs" else out


net = cache(Net)
torch.manual_seed(0)
X = torch.randn(8, 3)
PATH = torch.arange(7)
EDGE_INDEX = torch.cat([torch.stack([PATH, PATH + 1]), torch.stack([PATH + 1, PATH])], 1)
BATCH = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
PAIRS = torch.tensor([[0, 1, 2], [3, 4, 5]])


def explained(combination: Combination) -> tuple[Explainer, Explanation]:
    level, (mode, returns), (nodes, edges), kind, index = combination
    model = net(level, (mode, returns))
    config = {"mode": mode, "task_level": level, "return_type": returns}
    explainer = Explainer(
        model, GraphSVXAlgorithm(), explanation_type=kind, node_mask_type=nodes,
        edge_mask_type=edges, model_config=config,
    )  # fmt: skip
    with torch.no_grad():
        outputs = model(X, EDGE_INDEX, BATCH, PAIRS)
    target = explainer.get_target(outputs) if kind == "phenomenon" else None
    if target is not None and mode != "regression":
        target = (target + 1) % outputs.shape[1] if outputs.shape[1] > 1 else 1 - target
    explanation = explainer(
        X, EDGE_INDEX, target=target, index=torch.arange(3) if index == "several" else index,
        batch=BATCH, edge_label_index=PAIRS,
    )  # fmt: skip
    return explainer, explanation


def check(combination: Combination) -> None:
    explainer, explanation = explained(combination)
    assert explanation.validate(raise_on_error=True)
    nodes, edges = combination.masks
    assert ("node_mask" in explanation) == (nodes is not None)
    assert ("edge_mask" in explanation) == (edges is not None)
    shapes = {"object": (8, 1), "common_attributes": (1, 3), "attributes": (8, 3)}
    if nodes is not None:
        assert explanation.node_mask.shape == shapes[nodes]
        assert bool(((explanation.node_mask >= 0) & (explanation.node_mask <= 1)).all())
    if edges is not None:
        assert explanation.edge_mask.shape == (14,)
        assert bool(((explanation.edge_mask >= 0) & (explanation.edge_mask <= 1)).all())
    if combination.outputs[0] != "regression":
        assert all(0 <= score <= 1 for score in fidelity(explainer, explanation))
    if combination.outputs[0] == "multiclass_classification":
        # With a single output PyG compares numbers that are no distribution.
        assert -1e-6 <= unfaithfulness(explainer, explanation) <= 1


@pytest.mark.parametrize("combination", list(covering()), ids=lambda c: "-".join(map(str, c)))
def test_every_combination_is_explained(combination: Combination) -> None:
    check(combination)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("masks", [("object", None), (None, "object"), ("attributes", None)])
def test_credit_of_several_outputs_is_their_average(level: str, masks: Any) -> None:
    combination = Combination(level, OUTPUTS[2], masks, "model", "several")
    name = "edge_credit" if masks[1] else "node_credit"
    together = explained(combination)[1][name]
    single = [explained(combination._replace(index=i))[1][name] for i in range(3)]
    torch.testing.assert_close(together, torch.stack(single).mean(0))


def test_attributes_are_the_cells_of_nodes_and_features() -> None:
    combination = Combination("node", OUTPUTS[2], ("attributes", None), "model", 2)
    explanation = explained(combination)[1]
    record = explanation.graphsvx
    torch.testing.assert_close(explanation.node_credit, record.cell_matrix.float())
    presence = sum(cell.value for cell in record.top_cells() if cell.feature == "presence")
    total = float(explanation.node_credit.sum()) + presence
    assert total == pytest.approx(record.prediction - record.base, abs=1e-5)


def test_a_phenomenon_is_explained_for_the_given_target() -> None:
    combination = Combination("node", OUTPUTS[2], ("object", "object"), "phenomenon", 2)
    explanation = explained(combination)[1]
    assert [e.target for e in explanation.graphsvx] == [int(explanation.target[2])] * 2


if __name__ == "__main__":
    for each in ALL:
        check(each)
    print(f"{len(ALL)} combinations pass")  # noqa: T201  (the count, when it is run as a script)
