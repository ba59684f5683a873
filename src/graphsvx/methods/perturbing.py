"""Greedy, PGM-Explainer and Random: baselines over the players of GraphSVX."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.core.players import FeatureChoice, Hops, Sides
from graphsvx.core.query import Query
from graphsvx.engine.choose import choose_evaluator, run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import BudgetError
from graphsvx.estimators.bayes import CHANGE, BayesNetwork, Network
from graphsvx.estimators.direct import mask_as_credit
from graphsvx.games.base import require_memory
from graphsvx.games.graph_game import GraphGame
from graphsvx.generators import Isolate
from graphsvx.generators.replace import ReplaceRows, Unchanged
from graphsvx.methods.baseline import (
    Baseline,
    Block,
    Blocks,
    Properties,
    baseline_setup,
    game_report,
    scores_in_parts,
    unperturbed_prediction,
)
from graphsvx.methods.pipeline import Prediction
from graphsvx.methods.playing import coalitions_agree
from graphsvx.methods.record import build_explanation, credits
from graphsvx.results.details import BayesianNetwork, ChangeProbability
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Count, Range
from graphsvx.utils.imports import require_extra

# --- Greedy: the player with the largest effect is removed, until the prediction changes ------


def one_less(on: Bools) -> tuple[Bools, Ids]:
    """MASK: the coalitions [players on, players] with one more player off, and those players."""
    players_on = np.flatnonzero(on)
    coalitions = np.tile(on, (len(players_on), 1))
    coalitions[np.arange(len(players_on)), players_on] = False
    return coalitions, players_on


@dataclass(frozen=True)
class Greedy(Baseline):
    """Removes the most contributory feature or node until the prediction changes.

    The value of a player is the decrease of the score at its removal, 0 for players that were not
    removed. Values add up to prediction - base, where base is the score after the last removal.
    """

    players: Literal["both", "nodes", "features"] = "both"
    features: FeatureChoice = 0.25
    hops: Hops = None
    rounds: Annotated[int | None, Range(1)] = None
    """Maximum number of removals; None: until the prediction changes."""

    explains_typed_graphs: ClassVar[bool] = True
    blocks: ClassVar[Blocks] = Blocks(
        title="Greedy",
        mask=Block("M_N, M_F with one more player off in each round", one_less),
        gen=Block("Eq. 1-2: features to their mean, nodes without edges", Isolate),
        expl=Block("the loss of score at each removal", mask_as_credit),
        explains=("nodes", "features"),
        properties=Properties(
            decomposable=True, general=True, robust=True, meaningful=True, selective=True
        ),
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Remove players greedily for each explained output."""

        def holds(evaluator: Evaluator, result: tuple[Explanation, GraphGame, Bools]) -> bool:
            _, game, coalitions = result
            if not evaluator.checks.matches(game.full_output):
                return False
            rng, count = np.random.default_rng(seed), evaluator.checks.replays
            sample = rng.permutation(len(coalitions))[:count]
            return not count or coalitions_agree(game, coalitions[sample], rng)

        return run_verified(query, self.hops, seed, lambda e: self._run(query, e, seed), holds)[0]

    def _run(
        self, query: Query, evaluator: Evaluator, seed: int
    ) -> tuple[Explanation, GraphGame, Bools]:
        """The explanation, its game, and the coalitions after each removal."""
        setup = baseline_setup(query, evaluator, self.players, self.features, self.hops)
        game = GraphGame(query, evaluator, setup, Isolate(), "joint", rest_on=True)
        ends = game.end_states()
        game.record_output_of(int(ends[1]))
        empty, full = game.values(ends)
        prediction = Prediction.of(query, evaluator, full)
        require_memory(game.memory, 3 * game.players**2, game.players, game.players)
        losses, bases, removed = zip(
            *(self._remove(query, game, full, empty, output) for output in prediction.outputs),
            strict=True,
        )
        count, columns = setup.players.features, setup.players.feature_members
        ids = evaluator.field.ids[setup.players.node_members]
        explanation = build_explanation(
            self,
            seed,
            prediction,
            bases=torch.stack(bases),
            features=mask_as_credit(torch.from_numpy(columns), [row[:count] for row in losses]),
            nodes=mask_as_credit(torch.from_numpy(ids), [row[count:] for row in losses]),
            meaning=(
                "the score lost when the player was taken away, in the order of `removed`; "
                "0 for players that were still there when the prediction had changed"
            ),
            game=game_report("joint", game.players, game.calls, "one_less"),
        )
        features, nodes = explanation.feature_credit, explanation.node_credit
        names = [
            *(features.names or features.default_names("feature")),
            *(nodes.names or nodes.default_names("node")),
        ]
        everyone = np.arange(game.players)
        left = [
            np.isin(everyone, order[:count], invert=True)
            for order in removed
            for count in range(len(order) + 1)
        ]
        named = tuple(tuple(names[i] for i in order) for order in removed)
        return replace(explanation, removed=named), game, np.stack(left)

    def _remove(
        self, query: Query, game: GraphGame, full: Tensor, empty: Tensor, output: int
    ) -> tuple[Tensor, Tensor, list[int]]:
        """The loss of each player, the score after the last removal, and who was removed."""
        on: Bools = np.ones(game.players, dtype=bool)
        losses = torch.zeros(game.players, dtype=torch.float64)
        score, order = full, list[int]()
        while on.any() and len(order) < (self.rounds or game.players):
            coalitions, removable = one_less(on)
            scores = game.values(game.states(coalitions))
            best = int(scores[:, output].argmin())
            if score[output] <= scores[best, output]:
                break  # no removal decreases the score any more
            player = int(removable[best])
            losses[player], on[player] = score[output] - scores[best, output], False
            order.append(player)
            score = scores[best]
            if query.model.scale != "value" and len(full) > 1:
                changed = bool(score.argmax() != full.argmax())
            else:
                # Regression has no class to change: stop at 90 % of the way to the empty
                # coalition's score.
                moved, most = (score - full)[output], (empty - full)[output]
                changed = bool(moved.abs() >= 0.9 * most.abs())
            if changed:
                break
        return losses, score[output].double(), order


# --- PGM-Explainer: a probabilistic graphical model of which nodes the prediction hangs on ----


def coin_flips(rows: int, players: int, rate: float, seed: int) -> Bools:
    """MASK: each node is perturbed in each row with probability `rate`."""
    rng, flips = np.random.default_rng(seed), np.empty((rows, players), dtype=bool)
    for row in flips:  # one by one: random numbers take eight times the memory of flips
        np.less(rng.random(players), rate, out=row)
    return flips


@dataclass(frozen=True)
class PGMExplainer(Baseline):
    """Nodes whose perturbation the change of the prediction depends on, as a Bayesian network.

    I(.) of the paper: a row counts as changed if the explained score falls by more than
    `drop`, or, without one, by more than it does on average over the rows.
    """

    samples: Annotated[int, Range(10, MOST, error=BudgetError)] = 1000
    rate: Annotated[float, Range(0, 1, inside=True)] = 0.5
    drop: float | None = None
    by: Literal["mean", "zero"] = "mean"
    """What features are replaced by; where all nodes are alike the mean changes nothing."""
    significance: Annotated[float, Range(0, 1, inside=True)] = 0.05
    blanket: Count = 6
    """At most so many nodes in the Markov blanket."""
    hops: Hops = None

    blocks: ClassVar[Blocks] = Blocks(
        title="PGM-Explainer",
        mask=Block("M_N in {0, 1}, independent coin flips", coin_flips),
        gen=Block("X' = M_N X + (1 - M_N) mu, A' = A", ReplaceRows),
        expl=Block("Bayesian network of M_N and the change of prediction, by BIC", BayesNetwork),
        explains=("nodes",),
        properties=Properties(general=True, selective=True),
        source="Vu and Thai 2020",
        package="pgmpy",
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Perturb, test, learn."""
        require_extra("pgmpy.ci_tests")
        evaluator = choose_evaluator(query, self.hops, seed)
        setup = baseline_setup(query, evaluator, "nodes", hops=self.hops)
        ids = evaluator.field.ids[setup.players.node_members]
        require_memory(query.memory, 4 * self.samples * len(ids), self.samples, len(ids))
        perturbed = coin_flips(self.samples, len(ids), self.rate, seed)
        # Row 0 is the graph as it is.
        on = np.concatenate([np.ones((1, len(ids)), dtype=bool), ~perturbed])
        no_features = np.zeros((len(on), 0), dtype=bool)
        generator = ReplaceRows(self.by)
        scores: Floats = scores_in_parts(
            query,
            evaluator,
            lambda part: generator(setup, no_features[part], on[part]),
            on,
            32 * evaluator.field.size,
        ).numpy()
        prediction = Prediction.of(query, evaluator, torch.from_numpy(scores[0]))
        fell, outputs = scores[:1] - scores[1:], prediction.outputs
        networks = [self._learn(perturbed, fell[:, output]) for output in outputs]
        return build_explanation(
            self,
            seed,
            prediction,
            nodes=mask_as_credit(
                torch.from_numpy(ids), [torch.from_numpy(network.strength) for network in networks]
            ),
            meaning=(
                "Cramér's V between -1 and 1: how strongly a fall of the score depends on the "
                "node's features being replaced; 0 if that may be chance"
            ),
            game=game_report("nodes", len(ids), self.samples + 1, "coin_flips"),
            network=_in_user_ids(networks[outputs.index(prediction.target)], ids),
        )

    def _learn(self, perturbed: Bools, fell: Floats) -> Network:
        changed: Bools = fell > (fell.mean() if self.drop is None else self.drop)
        if np.ptp(fell) <= 1e-9:
            changed = np.zeros(len(fell), dtype=bool)  # rounding is no change
        return BayesNetwork(self.significance, self.blanket)(perturbed, changed)


def _in_user_ids(network: Network, ids: Ids) -> BayesianNetwork:
    """The network in the user's node ids."""

    def named(name: str) -> str:
        return name if name == CHANGE else f"node {ids[int(name.split()[1])]}"

    return BayesianNetwork(
        blanket=tuple(int(ids[i]) for i in network.blanket),
        edges=tuple((named(a), named(b)) for a, b in network.edges),
        bic_gain=float(network.bic),
        p_values=dict(zip(map(str, ids.tolist()), network.p_values.tolist(), strict=True)),
        chance_of_change=tuple(
            ChangeProbability(int(ids[i]), *chances)
            for i, chances in zip(network.blanket, network.chances, strict=True)
        ),
    )


# --- Random: what every explainer should outperform -------------------------------------------


def uniform(players: int, rng: torch.Generator) -> Tensor:
    """A mask with every entry uniform in [0, 1]."""
    return torch.rand(players, generator=rng, dtype=torch.float64)


def _rng_of(query: Query, seed: int) -> torch.Generator:
    """A separate random stream for each query.

    With the same stream for all queries, players at the same position would get the same values,
    and a mean over queries would not be a mean over independent draws.
    """
    digest = hashlib.sha256(f"{seed} {query.kind} {query.centres.tolist()}".encode())
    if query.kind == "graph":
        digest.update(query.graph.edge_index.cpu().numpy().tobytes())
    return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:7], "little"))


@dataclass(frozen=True)
class Random(Baseline):
    """Uniform random numbers in [0, 1] for the players of GraphSVX."""

    players: Sides = "both"
    features: FeatureChoice = 0.25

    explains_typed_graphs: ClassVar[bool] = True
    blocks: ClassVar[Blocks] = Blocks(
        title="Random",
        mask=Block("M_N, M_F (or M_E) uniform in [0, 1]", uniform),
        gen=Block("unchanged", Unchanged),
        expl=Block("the mask itself", mask_as_credit),
        explains=("nodes", "features", "edges"),
        properties=Properties(general=True),
    )

    def explain(self, query: Query, seed: int) -> Explanation:
        """Draw a random value for every player and output."""
        prediction, rng = unperturbed_prediction(query, seed), _rng_of(query, seed)
        evaluator, outputs = prediction.evaluator, prediction.outputs
        players = baseline_setup(query, evaluator, self.players, self.features).players
        counts = players.features, players.nodes, players.edges
        sides = [torch.stack([uniform(count, rng) for _ in outputs]) for count in counts]
        values = torch.cat(sides, 1)
        return build_explanation(
            self,
            seed,
            prediction,
            **credits(evaluator.field, players, values, torch.full_like(values, torch.nan)),
            players=players,
            meaning="a random number in [0, 1], which means nothing",
            game=game_report("random", values.shape[1], 1, "uniform"),
        )
