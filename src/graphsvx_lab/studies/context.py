"""How explainers are asked in a study: where it works, settings, and how answers are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch_geometric.utils import scatter

from graphsvx import runs
from graphsvx.core.model import Scale
from graphsvx.errors import DataError
from graphsvx.estimators.direct import edges_to_nodes
from graphsvx.methods import (
    LIME,
    SHAP,
    Edges,
    GNNExplainer,
    GraphSVX,
    Greedy,
    IntegratedGradients,
    Method,
    PGExplainer,
    PGMExplainer,
    Random,
    Saliency,
)
from graphsvx.results.explanation import Credit, Explanation, Ranking
from graphsvx.runs import identity
from graphsvx.runs.backends import Answer, Chunk, Job
from graphsvx.utils import processes
from graphsvx.utils.console import message
from graphsvx.utils.constraints import as_call
from graphsvx_lab import datasets, zoo
from graphsvx_lab.datasets.base import DataSet, draw
from graphsvx_lab.zoo import Settings, Trained

QUICK_EPOCHS = 10  # a quick study trains its models for 1/10 of the usual epochs


@dataclass(frozen=True, eq=False)
class StudyContext:
    """Everything that a study needs besides its declaration.

    out: the folder of tables and pages.
    runs: the folder of explanations and measurements; a study that is started again goes on there.
    quick: a small version, to see that everything works; its figures mean nothing.
    workers: processes that explain; None: one for each core.
    command: what made the page.
    failures: explanations that could not be made, and why.
    """

    out: Path
    runs: Path
    quick: bool = False
    workers: int | None = None
    command: str = "graphsvx study"
    failures: dict[str, str] = field(default_factory=dict)

    def trained_model(
        self, dataset: str, seed: int = 0, model: str | None = None, **changes: Any
    ) -> Trained:
        """A data set and its model; trained the first time, loaded afterwards.

        changes: of the zoo's settings; such models are kept beside the explanations.
        """
        usual = zoo.settings_for(dataset, model)
        settings = replace(usual, **changes)
        folder = f"models-{identity.short_hash(settings)}" if settings != usual else "models"
        root = self.runs / folder if self.quick or settings != usual else None
        return _trained_model(dataset, seed, self.shorter(settings), root)

    def shorter(self, settings: Settings) -> Settings:
        """Settings with the training of a quick study, if this is one."""
        epochs = max(1, settings.epochs // QUICK_EPOCHS) if self.quick else settings.epochs
        return replace(settings, epochs=epochs)

    def explanations(
        self,
        trained: Trained,
        method: Method,
        queries: Iterable[int],
        *,
        seed: int = 0,
        **options: Any,
    ) -> dict[int, Explanation]:
        """Explain nodes (or graphs, by position), as a run that is kept; by query, ascending.

        The folder is named after everything that decides the result: studies share what they
        have in common, and other settings are another run. Explanations that failed are left out
        and noted in `failures`.
        """
        ids = sorted({int(query) for query in queries})
        dataset, name = trained.dataset, type(method).__name__
        message(f"{trained.card.name}: {name}, {len(ids)} {dataset.task}s")
        is_graph = dataset.task == "graph"
        # Only the graphs in question: a run reads and names everything that it is given.
        run = runs.start(
            trained.model,
            [dataset.graphs[i] for i in ids] if is_graph else dataset.graph,
            nodes=None if is_graph else ids,
            graphs=range(len(ids)) if is_graph else None,
            out=self.folder(trained, name, method, ids, seed, options, "these graphs"),
            method=method,
            backend=InProcess() if self.workers == 1 else runs.Local(self.workers),
            seed=seed,
            class_names=dataset.class_names,
            command=self.command,
            retry_failed=True,
            **options,
        )
        for place, reason in run.failures().items():
            query = ids[place] if is_graph else place
            self.failures[f"{trained.card.name}, {name}, {query}"] = reason
        if not is_graph:
            return {e.centres[0]: e for e in run}
        places = {ids[e.graph_index or 0]: e for e in run}
        return {graph: replace(e, graph_index=graph) for graph, e in places.items()}

    def folder(self, trained: Trained, name: str, *settings: Any) -> Path:
        """Where results that rest on these settings are kept; other weights, another folder."""
        weights = identity.of_model(trained.model)["weights"]
        versions = sorted(identity.package_versions().items())
        key = identity.short_hash([weights, trained.dataset.fingerprint, versions, list(settings)])
        return self.runs / trained.card.name / f"{name.lower()}-{key}"


class InProcess:
    """A backend without a process of its own: what the engine knows of a model is kept."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer]:
        """See `graphsvx.runs.backends.Backend`."""
        while (chunk := take()) is not None:
            yield job(chunk)
            if processes.stop_requested():  # the rest of the chunk may have been left out
                raise KeyboardInterrupt


# --- data and models, kept ------------------------------------------------------------------


@lru_cache(maxsize=3)
def _loaded(dataset: str, seed: int) -> DataSet:
    return datasets.load(dataset, seed)


@cache
def _there(dataset: str) -> bool:  # errors are not cached: files may come later
    return bool(_loaded(dataset, 0).graphs)


def why_missing(dataset: str) -> str | None:
    """Why a data set cannot be loaded (its raw files are not there), or None."""
    try:
        _there(dataset)
    except DataError as error:
        return str(error)
    return None


Change = Callable[[DataSet], DataSet]


@lru_cache(maxsize=6)
def _trained_model(
    dataset: str, seed: int, settings: Settings, root: Path | None, change: Change | None = None
) -> Trained:
    """The model in a file below `root`; trained if there is none with exactly these settings."""
    data = _loaded(dataset, seed)
    if root is not None and change is not None:
        data = change(data)
        root /= identity.short_hash([settings, data.fingerprint])
    with zoo.training.training_bar(f"model of {data.name}, seed {seed}") as progress:
        return zoo.ensure(data, settings.model, seed, progress, root, settings=settings)


MakeModel = Callable[[StudyContext, str, int], Trained]
"""A trained model of a data set and seed."""


def model_of(change: Change, settings: Settings) -> MakeModel:
    """A model with these settings of a data set after `change`; trained once, then loaded."""
    return lambda context, dataset, seed: _trained_model(
        dataset, seed, context.shorter(settings), context.runs / "models-of-changed-data", change
    )


# --- readings of explanations: node scores from those of edges, fewer features, no credit -------

EdgeRule = Literal["largest", "mean", "undirected"]
"""A node's score from those of its edges: the one of largest magnitude, their mean, or the largest
after the two directions of an edge have been averaged."""


def both_directions(explanation: Explanation) -> Explanation:
    """Edges that play once for both directions, named in both, as the truth names them."""
    edges = explanation.edge_credit
    reversible = (edges.ids[0] != edges.ids[1]).nonzero()[:, 0]
    ids = torch.cat([edges.ids, edges.ids[:, reversible].flip(0)], 1)
    places = torch.cat([torch.arange(edges.players), reversible])
    credit = Credit(ids, edges.values[:, places], edges.errors[:, places])
    return replace(explanation, edge_credit=credit)


def with_node_scores(explanation: Explanation, rule: EdgeRule) -> Explanation:
    """Node credit from that of edges; unchanged if edges have none."""
    edges, ids = explanation.edge_credit, explanation.field.ids
    if not edges.players:
        return explanation
    ids = ids[~torch.isin(ids, torch.tensor(explanation.centres, dtype=torch.long))]
    if rule == "mean":
        is_end = (edges.ids[:, None, :] == ids[None, :, None]).any(0).to(edges.values)
        values = edges.values @ is_end.t() / is_end.sum(1).clamp(min=1)
    else:
        scores = edges.values if rule == "largest" else _undirected(edges)
        values = edges_to_nodes(edges.ids, scores, ids)
    credit = Credit(ids, values, torch.full_like(values, torch.nan))
    return replace(explanation, node_credit=credit)


def _undirected(edges: Credit) -> torch.Tensor:
    """Each edge with the mean of its two directions; a direction alone keeps its value."""
    _, group = torch.unique(edges.ids.sort(0).values, dim=1, return_inverse=True)
    return scatter(edges.values, group, 1, reduce="mean")[:, group]


def without_credit(explanation: Explanation) -> Explanation:
    """All players tied: scores what random rankings score on average, since ties are averaged."""
    zeros: Any = {
        f"{kind}_credit": replace(credit, values=torch.zeros_like(credit.values))
        for kind, credit in explanation.credit_by_kind.items()
    }
    return replace(explanation, **zeros)


def with_features(explanation: Explanation, features: Collection[int]) -> Explanation:
    """Only these of the features, so that all explainers choose from the same ones."""
    credit = explanation.feature_credit
    mask = torch.isin(credit.ids, torch.tensor(sorted(features), dtype=credit.ids.dtype))
    restricted = Credit(credit.ids[mask], credit.values[:, mask], credit.errors[:, mask])
    return replace(explanation, feature_credit=restricted)


# --- settings of explainers ------------------------------------------------------------------

CLOSE = 0.01  # how far from the best candidate a selected setting may be: the plainer one is taken
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
        match self.method:
            case object(players=Edges(directions="together")):
                explanation = both_directions(explanation)
        explanation = with_node_scores(explanation, self.edge_rule)
        return explanation if self.change is None else self.change(explanation)

    def quick(self) -> Setting:
        """The same with a fraction of the effort."""
        method: Any = self.method
        if isinstance(method, GraphSVX):
            fewer = method.with_settings(samples=max(20, (method.budget.samples or 1000) // 10))
            return replace(self, method=fewer)
        return replace(self, method=replace(method, **QUICK_METHODS.get(type(method), {})))

    def words(self) -> str:
        """In one line of a page: what differs from the defaults."""
        words = [f"`{as_call(self.method)}`"]
        words += [self.scale.replace("_", "-")] if type(self.method) is GraphSVX else []
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
