"""Random-walk mass of nodes and edges on a small tree, by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from graphsvx.core.data import check_graph
from graphsvx.core.field import Field, in_neighbourhood
from graphsvx.core.players import Players
from graphsvx.games.graph_game import prior_of_edges, prior_of_nodes

# 0 hears 1 and 2; 1 hears 3; 4 hears 0 only and is heard by 3, three hops away.
EDGES = [(1, 0), (2, 0), (3, 1), (4, 3), (0, 4)]


def tree() -> Field:
    data = Data(x=torch.ones(5, 1), edge_index=torch.tensor(EDGES).t().contiguous())
    return in_neighbourhood(check_graph(data), np.array([0]), 3)


def of_nodes(field: Field, owner: list[int]) -> Players:
    members = np.array([int(np.flatnonzero(field.ids == node)[0]) for node in range(1, 5)])
    return Players(node_members=members, node_owner=np.array(owner))


def test_mass_is_how_often_a_walk_that_may_stay_is_at_a_node() -> None:
    field = tree()
    prior = prior_of_nodes(field, of_nodes(field, [0, 1, 2, 3]), 2)
    assert prior is not None
    # After a step: 1/3 each at 0, 1, 2. After two: 1/9 + 1/6 at 1, 1/9 + 1/3 at 2, 1/6 at 3.
    mass = [1 / 3 + 1 / 9 + 1 / 6, 1 / 3 + 1 / 9 + 1 / 3, 1 / 6]
    np.testing.assert_allclose(prior.relevance, [*mass, min(mass) / 10])
    assert prior.direct.tolist() == [True, True, False, False]
    # Half of what 1 gets comes from 3, the other half is its own.
    assert prior.passed is not None
    np.testing.assert_allclose(prior.passed, [[0, 0, 1 / 2, 0], [0, 0, 0, 0]])


def test_groups_have_the_mass_of_their_members_and_pass_nothing_on() -> None:
    field = tree()
    single, grouped = (
        prior_of_nodes(field, of_nodes(field, owner), 2) for owner in ([0, 1, 2, 3], [0, 1, 0, 1])
    )
    assert single is not None
    assert grouped is not None
    expected = [single.relevance[0] + single.relevance[2], single.relevance[1]]
    np.testing.assert_allclose(grouped.relevance, expected)
    assert grouped.passed is None


def test_nothing_is_passed_on_within_one_step_or_without_direct_players() -> None:
    field = tree()
    assert prior_of_nodes(field, of_nodes(field, [0, 1, 2, 3]), 1).passed is None
    far = np.flatnonzero(field.hops >= 2)
    players = Players(node_members=far, node_owner=np.arange(len(far)))
    assert prior_of_nodes(field, players, 1) is None
    assert prior_of_nodes(field, players, 2).passed is None


def test_mass_of_edges_is_how_often_they_are_taken() -> None:
    field = tree()
    edges = field.inner_edges
    players = Players(edge_members=edges, edge_owner=np.arange(len(edges)))
    prior = prior_of_edges(field, players, 2)
    assert prior is not None
    # From 0 with 1/3 a step, and 1/3 of the time again after it stayed; from 1 with 1/2.
    taken = {(1, 0): 1 / 3 + 1 / 9, (2, 0): 1 / 3 + 1 / 9, (3, 1): 1 / 6}
    ends = [(int(field.ids[field.source[e]]), int(field.ids[field.target[e]])) for e in edges]
    least = min(taken.values()) / 10
    np.testing.assert_allclose(prior.relevance, [taken.get(pair, least) for pair in ends])
    assert prior.direct.tolist() == [target == 0 for _, target in ends]
