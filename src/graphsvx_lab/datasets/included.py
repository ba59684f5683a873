"""Small real data sets that come with networkx and scikit-learn: nothing is downloaded.

The seed determines the split only. In the three social networks a quarter is held out for
validation and a quarter for the test, because a tenth of them would be two or three people.
"""

from __future__ import annotations

import networkx as nx
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_undirected

from graphsvx_lab.datasets.base import DataSet, Split, data_set, generator, stratified_split

NEAREST = 5
"""Neighbours of an image in `digits`."""
CIRCLES = ("Valjean", "Enjolras", "Fantine", "Myriel", "Champmathieu")
"""A character of each class of `les-miserables`."""
EVENT_DATES = (
    "27 June", "2 March", "12 April", "26 September", "25 February", "19 May", "15 March",
    "16 September", "8 April", "10 June", "23 February", "7 April", "21 November", "3 August",
)  # fmt: skip
IN_BOTH_GROUPS = 8
"""Ruth DeSand; the Southern women before her are group 1, those after her group 2."""


def karate(name: str, seed: int, _root: object) -> DataSet:
    """The karate club of Zachary (1977): members, and who met whom outside of the club.

    The class is the club that a member joined after the quarrel between the instructor, Mr. Hi,
    and the administrator, John A. ("officer"). A feature says which member it is.
    """
    network = nx.karate_club_graph()
    names = ["Mr. Hi", *(f"member {number}" for number in range(2, 34)), "John A."]
    officer = [network.nodes[node]["club"] == "Officer" for node in network]
    return _social(name, seed, network, names, torch.tensor(officer), ("Mr. Hi", "officer"))


def les_miserables(name: str, seed: int, _root: object) -> DataSet:
    """Characters of Les Misérables (Knuth 1993), and in how many chapters two of them meet.

    These numbers are the edge weights. The class is a community of greedy modularity maximisation
    on the weighted graph, named after one of its characters: it is computed from the edges, not a
    fact about the novel. A feature says which character it is.
    """
    network = nx.les_miserables_graph()
    names = list(network)
    labels = torch.empty(len(names), dtype=torch.long)
    for community in nx.community.greedy_modularity_communities(network, weight="weight"):
        (label,) = (label for label, main in enumerate(CIRCLES) if main in community)
        labels[[names.index(person) for person in community]] = label
    classes = tuple(f"{main}'s circle" for main in CIRCLES)
    return _social(name, seed, network, names, labels, classes, weighted=True)


def southern_women(name: str, seed: int, _root: object) -> DataSet:
    """18 women and the 14 social events that they attended (Davis, Gardner and Gardner 1941).

    The class is the group that the authors assigned after interviews. They counted Ruth DeSand to
    both: her class is -1 and she is in no part of the split. All women have the same feature; that
    of an event says which one it is.
    """
    network = nx.davis_southern_women_graph()
    women, events = (
        [node for node, side in network.nodes(data="bipartite") if side == part] for part in (0, 1)
    )
    labels = (torch.arange(len(women)) > IN_BOTH_GROUPS).long()
    labels[IN_BOTH_GROUPS] = -1
    attended = torch.tensor(
        [(women.index(woman), events.index(event)) for woman, event in network.edges(women)]
    ).t()
    graph = HeteroData()
    graph["woman"].x = torch.ones(len(women), 1)
    graph["woman"].y = labels
    graph["woman"].names = women
    graph["event"].x = torch.eye(len(events))
    graph["event"].names = [
        f"{event} ({date})" for event, date in zip(events, EVENT_DATES, strict=True)
    ]
    graph["woman", "attended", "event"].edge_index = attended
    graph["event", "rev_attended", "woman"].edge_index = attended.flip(0)
    split = _quarters(name, seed, labels)
    return data_set(name, seed, graph, ("group 1", "group 2"), split=split, node_type="woman")


def digits(name: str, seed: int, _root: object) -> DataSet:
    """1,797 handwritten digits of 8 x 8 pixels (scikit-learn; Alpaydin and Kaynak 1998).

    Each image is joined to the 5 that differ least from it in their pixels, both ways. Features
    are the pixels, row by row, from 0 (paper) to 1 (ink): `x[i].reshape(8, 8)` is image i.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415  (slow to import)

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.data)
    labels = torch.from_numpy(bunch.target).long()
    graph = Data(x=(pixels / 16).float(), edge_index=_nearest_neighbours(pixels), y=labels)
    names = tuple(f"pixel {row},{column}" for row in range(8) for column in range(8))
    return data_set(name, seed, graph, list(map(str, range(10))), feature_names=names)


def _nearest_neighbours(pixels: Tensor) -> Tensor:
    """Edges between each row and the `NEAREST` rows that are closest to it; [2, edges]."""
    squares = pixels.square().sum(1)
    # Whole numbers, exact in float64: equal distances are ordered by the number of the row.
    distance = squares[:, None] + squares - 2 * pixels @ pixels.t()
    order = distance * len(pixels) + torch.arange(len(pixels))
    nearest = order.fill_diagonal_(torch.inf).topk(NEAREST, largest=False).indices
    node = torch.arange(len(pixels)).repeat_interleave(NEAREST)
    return to_undirected(torch.stack([nearest.flatten(), node]))


def _social(
    name: str,
    seed: int,
    network: nx.Graph,
    names: list[str],
    labels: Tensor,
    class_names: tuple[str, ...],
    *,
    weighted: bool = False,
) -> DataSet:
    """A social network whose features say which person a node is."""
    weights = torch.from_numpy(nx.to_numpy_array(network)).float()
    edge_index = weights.nonzero().t().contiguous()
    graph = Data(x=torch.eye(len(names)), edge_index=edge_index, y=labels.long())
    if weighted:
        graph.edge_weight = weights[tuple(edge_index)]
    graph.node_names = names
    split, columns = _quarters(name, seed, labels.long()), tuple(f"is {person}" for person in names)
    return data_set(name, seed, graph, class_names, feature_names=columns, split=split)


def _quarters(name: str, seed: int, labels: Tensor) -> Split:
    """Half of the labelled nodes for training, a quarter each for validation and test."""
    labelled = (labels >= 0).nonzero().flatten()
    split = stratified_split(labels[labelled], generator(seed, name, "split"), held_out=0.25)
    return Split(**{part: labelled[index] for part, index in split.parts().items()})
