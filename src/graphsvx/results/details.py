"""What settings and methods add to an explanation besides credit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field


@dataclass(frozen=True)
class Groups:
    """Members of the players that stand for several features, nodes or edges, by name."""

    features: Mapping[str, tuple[int, ...]] = dataclass_field(default_factory=dict)
    nodes: Mapping[str, tuple[int, ...]] = dataclass_field(default_factory=dict)
    edges: Mapping[str, tuple[tuple[int, int], ...]] = dataclass_field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """How much of the prediction the players carry that a Lasso chose."""

    chosen: int
    """Players with credit."""
    players: int
    """All players."""
    carried: float | None
    """Share of the credit that the chosen had before the others were left out (None: the credit
    sums to nothing)."""
    alone: float
    """The model's score with only the chosen players on."""


@dataclass(frozen=True)
class Balance:
    """The factors by which `balance=alpha` rescaled the credit of the target."""

    alpha: float
    nodes: float
    features: float


@dataclass(frozen=True)
class ChangeProbability:
    """Probability that the prediction changes, without and with one node perturbed."""

    node: int
    left_alone: float
    perturbed: float


@dataclass(frozen=True)
class BayesianNetwork:
    """PGM-Explainer's network between perturbed nodes and a change of the prediction."""

    blanket: tuple[int, ...]
    """Markov blanket of the change: node ids, strongest first."""
    edges: tuple[tuple[str, str], ...]
    """Directed edges between "node <id>" and "change"."""
    bic_gain: float
    """BIC of the network, less that of the network without edges."""
    p_values: Mapping[str, float]
    """By node id."""
    chance_of_change: tuple[ChangeProbability, ...]
    """One for each node of the blanket."""


@dataclass(frozen=True)
class GeneratedGraph:
    """The graph that XGNN generated for a class."""

    kinds: tuple[int, ...]
    """Kind of each node: a row of the candidates."""
    x: tuple[tuple[float, ...], ...]
    """Features of each node."""
    edge_index: tuple[tuple[int, ...], tuple[int, ...]]
    score: float
    """The model's score of this graph for the class."""
    mean_score_untrained: float
    """Mean score of graphs drawn before the policy was trained."""
    mean_score_trained: float
    """Mean score of graphs drawn afterwards; `score` is the best of them."""
    history: tuple[float, ...]
    """Score of the last graph of each episode of training."""
