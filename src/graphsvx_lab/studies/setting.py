"""How an explainer is asked and how its answer is read: one line of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from graphsvx.core.model import Scale
from graphsvx.methods import LIME, SHAP, Edges, GNNExplainer, GraphSVX, Greedy, PGExplainer, Random
from graphsvx.methods.baseline import Method
from graphsvx.methods.gradients import IntegratedGradients, Saliency
from graphsvx.methods.perturbing import PGMExplainer
from graphsvx.results.explanation import Explanation, Ranking
from graphsvx.utils.console import message
from graphsvx.utils.constraints import as_call
from graphsvx_lab.datasets.base import draw
from graphsvx_lab.metrics.reading import EdgeRule, both_directions, with_node_scores, without_credit
from graphsvx_lab.studies.context import StudyContext
from graphsvx_lab.zoo import Trained

TRAINING_QUESTIONS = 30  # nodes or graphs of the training part, for PGExplainer
QUICK_METHODS: dict[type, dict[str, int]] = {
    GNNExplainer: {"epochs": 2},
    PGExplainer: {"epochs": 2},
    PGMExplainer: {"samples": 60},
    LIME: {"samples": 150},
    SHAP: {"samples": 150},
}


@dataclass(frozen=True)
class Setting:
    """An explainer with everything that is chosen about it.

    method: with its own settings; a PGExplainer is trained for each model.
    scale: the explained score.
    by: rank players by signed value or by magnitude.
    edge_rule: how nodes are scored where edges have credit.
    targets: "all" explains every class.
    change: applied to each explanation before anything is measured.
    """

    method: Method
    scale: Scale = "probability"
    by: Ranking = "value"
    edge_rule: EdgeRule = "largest"
    targets: Literal["all"] | None = None
    change: Callable[[Explanation], Explanation] | None = None

    def explanations(
        self, context: StudyContext, trained: Trained, queries: Iterable[int]
    ) -> dict[int, Explanation]:
        """Explanations by query; kept as a run, so that the next time they are only read."""
        ids, method = list(queries), self.method
        if not ids:
            return {}
        if isinstance(method, PGExplainer) and method.trained is None:
            method = fitted(context, trained, method, ids)
        options: Any = {"targets": self.targets} if self.targets else {}
        run = context.explanations(trained, method, ids, scale=self.scale, **options)
        return {query: self.read(explanation) for query, explanation in run.items()}

    def read(self, explanation: Explanation) -> Explanation:
        """With node scores where only edges have them, by the chosen rule."""
        players = getattr(self.method, "players", None)
        if isinstance(players, Edges) and players.directions == "together":
            explanation = both_directions(explanation)
        explanation = with_node_scores(explanation, self.edge_rule)
        return explanation if self.change is None else self.change(explanation)

    def quick(self) -> Setting:
        """The same with a fraction of the effort."""
        method: Any = self.method
        changes = QUICK_METHODS.get(type(method), {})
        if isinstance(method, GraphSVX):
            fewer = method.with_settings(samples=max(20, (method.budget.samples or 1000) // 10))
            return replace(self, method=fewer)
        return replace(self, method=replace(method, **changes)) if changes else self

    def words(self) -> str:
        """In one line of a page: what differs from the defaults."""
        words = [f"`{as_call(self.method)}`"]
        words += [self.scale.replace("_", "-")] if isinstance(self.method, GraphSVX) else []
        words += ["ranked by magnitude"] if self.by == "absolute" else []
        words += [f"edges to nodes: {self.edge_rule}"] if self.edge_rule != "largest" else []
        return ", ".join(words)


CHANCE = Setting(Random(players="nodes"), change=without_credit)
"""The exact average over all random rankings of nodes."""
SPARSE = GNNExplainer(300, 0.1, features=False, edge_size=0.05, edge_entropy=0.1)
"""GNNExplainer with long training and strong penalties, which is best on several sets."""
USUAL = {
    "GNNExplainer": Setting(GNNExplainer(lr=0.1, features=False), edge_rule="mean"),
    "PGM-Explainer": Setting(PGMExplainer()),
    "Saliency": Setting(Saliency()),
    "Integrated gradients": Setting(IntegratedGradients()),
    "Random": Setting(Random(players="nodes")),
}
"""Other explainers where nothing is known that settings could be chosen by."""
USUAL_WITHOUT_FEATURES = {
    **USUAL,
    "PGM-Explainer": Setting(PGMExplainer(by="zero")),
    "Integrated gradients": Setting(IntegratedGradients(baseline="zero")),
}
"""Where all nodes have the same features, their mean is no change at all."""
GRAPH_RIVALS = {
    "GNNExplainer": Setting(SPARSE, edge_rule="mean"),
    **{name: USUAL[name] for name in ("PGM-Explainer", "Integrated gradients", "Saliency")},
    "Greedy": Setting(Greedy(players="nodes")),
}
"""Other explainers of whole graphs, masks sparse."""


def fitted(
    context: StudyContext, trained: Trained, method: PGExplainer, scored: Collection[int]
) -> PGExplainer:
    """PGExplainer, trained on the training part without what is scored; kept in a file."""
    data, count = trained.dataset, 3 if context.quick else TRAINING_QUESTIONS
    questions = training_questions(trained, scored, count)
    path = context.folder(trained, "fitted", method, questions) / "weights.safetensors"
    if not path.exists():
        message(f"{trained.card.name}: training PGExplainer on {len(questions)} questions")
        graphs = data.graph if data.task == "node" else [data.graphs[graph] for graph in questions]
        nodes = questions if data.task == "node" else None
        path.parent.mkdir(parents=True, exist_ok=True)
        method.fit(trained.model, graphs, nodes=nodes).save(path)
    return PGExplainer.load(path)


def training_questions(trained: Trained, scored: Collection[int], count: int) -> list[int]:
    """Nodes or graphs with a motif, of the training part, none of them scored."""
    data = trained.dataset
    of_nodes = data.task == "node"
    truth = data.node_truth.nodes().tolist() if of_nodes else data.graph_truth.graphs()
    usable = sorted(set(truth) & set(data.split.train.tolist()) - set(scored))
    return draw(usable, count, data.seed, "pgexplainer", data.name)
