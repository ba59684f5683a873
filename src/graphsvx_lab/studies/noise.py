"""Studies `noisy-features` and `noisy-nodes`: how much that means nothing is among the top?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from graphsvx.errors import InputError
from graphsvx.methods import LIME, SHAP, GNNExplainer, GraphLIME, GraphSVX, Greedy, Random
from graphsvx_lab.datasets.catalogue import FEATURES_SUFFIX, NODES_SUFFIX, data_title
from graphsvx_lab.metrics.measurements import Measurements, Value, is_positive, model_values
from graphsvx_lab.metrics.truth import expected_hits
from graphsvx_lab.studies import motifs
from graphsvx_lab.studies.context import Setting, StudyContext
from graphsvx_lab.studies.page import Claim, Figure, Page, pivots
from graphsvx_lab.studies.study import CITATION_MODELS, Answer, Case, Grid, study_of
from graphsvx_lab.zoo import Trained
from graphsvx_lab.zoo.models import CitationGAT
from graphsvx_lab.zoo.paper import ACCURACY

# Data sets with noise: how much of it is among the most important ones, and whether models use it.
#
# A candidate without credit has 0. Where candidates share the last place, each of them is in with
# the same chance, and the expected number counts: a method that gives credit to few is filled up
# at random, not in the order of ids (noise has the last ids).


TOP, FEW, SHARE = 20, 100, 0.2
"""k; and the number of candidates below which it is a share of them."""
FIRST_WEIGHTS = "first.lin.weight"
"""Of a citation model, [units, columns]."""


def noise_of(trained: Trained) -> tuple[str, set[int]]:
    """What noise was added ("features" or "nodes"), and its ids."""
    noise = trained.dataset.noise
    if noise is None:
        raise InputError(f"expected a data set with noise, got {trained.dataset.name!r}")
    kind = "features" if len(noise.features) else "nodes"
    return kind, set(getattr(noise, kind).tolist())


def top_k(candidates: int) -> int:
    """How many of the candidates are looked at: 20, or 20 % of few, at least 1."""
    return TOP if candidates >= FEW else min(candidates, max(1, round(SHARE * candidates)))


def noise_shares(
    credit: Mapping[int, float], candidates: Sequence[int], noise: set[int], name: str
) -> dict[str, float]:
    """Noise among the top k of the candidates `name`, by value and by magnitude."""
    if not candidates:
        return {}
    credits = [credit.get(candidate, 0.0) for candidate in candidates]
    values = torch.tensor(credits, dtype=torch.float64)
    k = top_k(len(candidates))
    number, by_magnitude = (
        expected_hits(list(candidates), v, noise, k) for v in (values, values.abs())
    )
    return {
        f"number, {name}": number,
        f"share by value, {name}": number / k,
        f"share by magnitude, {name}": by_magnitude / k,
    }


@torch.no_grad()
def use_of_noise(trained: Trained) -> dict[str, float]:
    """Test nodes with and without the noise; and how long the weights of noisy columns are."""
    data, model = trained.dataset, trained.model
    kind, noise = noise_of(trained)
    x, edges, test, ids = data.graph.x, data.graph.edge_index, data.split.test, sorted(noise)
    weights, less = {}, (x, edges[:, ~torch.isin(edges, torch.tensor(ids)).any(0)])
    if kind == "features":
        noisy = torch.zeros(x.shape[1], dtype=torch.bool).index_fill(0, torch.tensor(ids), True)
        lengths, less = model.get_parameter(FIRST_WEIGHTS).norm(dim=0), (x * ~noisy, edges)
        weights["weights, noise / words"] = float(lengths[noisy].mean() / lengths[~noisy].mean())
    full, without = (model(*inputs).softmax(1)[test] for inputs in ((x, edges), less))
    classes, labels = full.argmax(1), data.labels[test]
    return {
        "test accuracy": float((classes == labels).double().mean()),
        "accuracy without noise": float((without.argmax(1) == labels).double().mean()),
        "classes that change": float((without.argmax(1) != classes).double().mean()),
        "change without noise": float((full - without).gather(1, classes[:, None]).abs().mean()),
        **weights,
    }


def attention_on_noise(trained: Trained) -> dict[str, float]:
    """Attention of a GAT on nodes: mean over those who look at a node, then over nodes.

    Nothing for other models, and where no nodes are noise. "with loops": with the attention that
    each node pays to itself.
    """
    model, graph, (kind, noise) = trained.model, trained.dataset.graph, noise_of(trained)
    if not isinstance(model, CitationGAT) or kind != "nodes":
        return {}
    (source, target), weights = model.attention(graph.x, graph.edge_index)
    noisy = torch.isin(torch.arange(graph.num_nodes), torch.tensor(sorted(noise)))
    values = {}
    for words, counts in (("without", source != target), ("with", source >= 0)):
        degree = torch.bincount(source[counts], minlength=graph.num_nodes)
        total = torch.bincount(source[counts], weights[counts].double(), minlength=len(degree))
        for name, group in (("noisy", noisy & (degree > 0)), ("normal", ~noisy & (degree > 0))):
            mean = (total[group] / degree[group]).mean()
            values[f"attention {words} loops, {name}"] = float(mean)
    return values


SETS, LITTLE = ("cora", "pubmed"), 0.02
"""The paper's; and a share that is close to zero."""
PAPER, OURS = "GraphSVX (as in the paper)", "GraphSVX (our default)"
FEATURE_BASELINES = {
    "GNNExplainer": Setting(GNNExplainer()),
    "GraphLIME": Setting(GraphLIME()),
    "LIME": Setting(LIME()),
    "SHAP": Setting(SHAP()),
    "Greedy": Setting(Greedy(players="features")),
    "Random": Setting(Random(players="features", features="all")),
}
NODE_BASELINES = {
    "GNNExplainer": Setting(GNNExplainer()),
    "Greedy": Setting(Greedy(players="nodes")),
    "Random": Setting(Random(players="nodes")),
}
CANDIDATES = {
    "features": ("features that stand out", "features that the node has"),
    "nodes": ("nodes that the model sees", "direct neighbours"),
}


def counted(answer: Answer) -> dict[str, float]:
    """Noise with two sets of candidates, which our players decide for everybody."""
    kind, noise = noise_of(answer.trained)
    ours = answer.of(OURS)
    if ours is None:
        return {}
    if kind == "features":
        value = answer.trained.dataset.graph.x[answer.question].tolist()
        fewer = [column for column in ours.features if value[column] != 0]
    else:
        distance = ours.field.distances
        fewer = [node for node in ours.nodes if distance[node] == 1]
    credit, (names, fewer_names) = getattr(answer.explanation, kind), CANDIDATES[kind]
    return {
        **noise_shares(credit, list(getattr(ours, kind)), noise, names),
        **noise_shares(credit, fewer, noise, fewer_names),
    }


def use(case: Case) -> list[Value]:
    """What the model does with the noise; of a GAT with noisy nodes, its attention on them."""
    trained = case.trained
    return model_values({**use_of_noise(trained), **attention_on_noise(trained)})


def without_noise_weights(name: str, context: StudyContext, dataset: str, seed: int) -> Trained:
    """The zoo's model with the weights of its noisy columns at 0: it cannot use them."""
    trained = context.trained_model(dataset, seed, name)
    return trained.with_zeros(FIRST_WEIGHTS, sorted(noise_of(trained)[1]))


ATTENTION = tuple(f"attention {words} loops, noisy" for words in ("without", "with"))


def _graphsvx(dataset: str) -> dict[str, Setting]:
    clean = next(name for name in SETS if dataset.startswith(name))
    return {PAPER: Setting(GraphSVX.paper(clean)), OURS: Setting(GraphSVX(samples=1000))}


FEATURES = Grid(
    tuple(name + FEATURES_SUFFIX for name in SETS),
    lambda name: {**_graphsvx(name), **FEATURE_BASELINES},
    motifs.test_nodes(10, cora=20),
    measures=(counted,),
    case_measures=(use,),
    models=CITATION_MODELS,
)
CANNOT_USE = replace(
    FEATURES,
    datasets=FEATURES.datasets[:1],
    case_measures=(),
    questions=motifs.test_nodes(10),
    models={f"{n}, noise weights 0": partial(without_noise_weights, n) for n in ("gcn", "gat")},
)
NODES = replace(
    FEATURES,
    datasets=tuple(name + NODES_SUFFIX for name in SETS),
    methods=lambda name: {**_graphsvx(name), **NODE_BASELINES},
)


def noise_page(results: Measurements, kind: str, baselines: Sequence[str]) -> Page:
    """Noise among the top, whether the models use it, and what deleting it does."""
    names, suffix = CANDIDATES[kind], FEATURES_SUFFIX if kind == "features" else NODES_SUFFIX
    share = f"share by value, {names[0]}"
    models = [(name, model) for name in SETS for model in FEATURES.models]
    declared = {data_title(*pair): ACCURACY[pair[0] + suffix, pair[1]] for pair in models}
    titles = dict.fromkeys([*declared, *results.names("data", measure=share)])
    claims = Claim.each(
        f"Close to no noisy {kind} at GraphSVX's top",
        dict.fromkeys(titles, "close to 0"),
        results.by("data", share, method=PAPER),
        lambda ours, _: ours.band[2] < LITTLE,
    )
    for title in titles:
        tests = results.tests(share, PAPER, baselines, sign=-1, data=title)
        statement = f"Fewer noisy {kind} than with any baseline"
        claims.append(Claim.first(statement, "fewest", tests, title))
    for noisy in ATTENTION if kind == "nodes" else ():
        pair = ("", noisy.replace("noisy", "normal")), ("", noisy)
        loops = noisy.removeprefix("attention ").removesuffix(", noisy")
        claims += [Claim.of(f"Attention is lower on noisy than on normal nodes ({loops}), by", 0.04,
                            results.paired(*pair, data=title), is_positive, on=title)
                   for title in declared if title.endswith("GAT")]  # fmt: skip
    counts: dict[str, dict[str, list[float]]] = {}
    for key in results.keys(measure=f"number, {names[0]}", model=list(FEATURES.models)):
        numbers = [n for by_node in results.series[key].values() for n in by_node.values()]
        counts.setdefault(key.entry("data"), {})[key.method] = numbers
    attention = results.names("measure", "attention")
    use_of_it = [name for name in results.names("measure", method="") if name not in attention]
    note = "The paper says that its models do not use it."
    tables = {
        "What the models do with the noise": {"measure": use_of_it, "note": note},
        "Attention (the paper: 0.11 on noisy, 0.15 on normal nodes)": attention,
    }
    in_paper = {"test accuracy": {title: accuracy[2] for title, accuracy in declared.items()}}
    of_models = pivots(results, tables, rows="measure", digits=3, paper=in_paper)
    return Page(
        f"Noisy {kind} among the most important ones", claims,
        Figure("kde", f"Noisy {kind} among the top k by value: densities over all nodes",
               lambda plots: plots.noise_panels(counts, kind)),
        {"Noise among the top k": pivots(results, results.names("measure", "share")),
         "Is the noise used?": of_models},
        f"20 % more {kind} that mean nothing are added before a model is trained. How many of "
        "them are among the most important ones?",
        "The predicted class of random test nodes is explained. Candidates are the same for all "
        f"methods: {names[0]}, or {names[1]}. k is {TOP}, or 20 % of the candidates where "
        f"there are fewer than {FEW}; ties count with the expected number of noisy ones."
        + " Models with noise weights 0 cannot use it." * (kind == "features"))  # fmt: skip


@study_of(FEATURES, CANNOT_USE)
def noisy_features(results: Measurements) -> Page:
    """how many meaningless features are among the top 20 (or 20 %), GraphSVX and baselines"""
    return noise_page(results, "features", list(FEATURE_BASELINES))


@study_of(NODES)
def noisy_nodes(results: Measurements) -> Page:
    """how many meaningless nodes are among the top 20 (or 20 %); the GAT's attention on them"""
    return noise_page(results, "nodes", list(NODE_BASELINES))
