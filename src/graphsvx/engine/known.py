"""What is known of a model on a graph: found out once, kept as long as neither changes.

Depth, kinds of layers, whether batches give what single calls give, and the prediction of every
node on the whole graph depend on the model and the graph, not on the question. They are kept
with a fingerprint of both. Weights that were changed behind torch's back do no harm: each
explanation compares its own full coalition with the kept prediction, and where they differ
everything is found out again.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.engine.prints import Print
from graphsvx.engine.structure import Structure
from graphsvx.errors import ModelError
from graphsvx.graph import Graph, Ids, outward
from graphsvx.model import Model, count_rounds

# Graphs with more numbers than this are not run through the model as a whole.
_SMALL = 1 << 24
_KEPT = 4


@dataclass(eq=False)
class Known:
    """Of one model on one graph."""

    graph: tuple[Any, ...]
    """Its tensors (weakly) with their versions."""
    depth: int | None
    takes: frozenset[str] = frozenset()
    """What the model was given."""
    looked: bool = False
    """Whether `way` and `whole` have been found out."""
    along: bool | None = None
    """Whether all layers count the edges into a node only; None: nobody has asked yet."""
    way: Any = None
    """The fastest `Way` in which batches gave what single calls give, on samples of the graph."""
    whole: Tensor | None = None
    """Raw outputs on the whole graph, [nodes, outputs]; None too for large graphs."""
    layers: Any = None
    """The model's `ModelLayers`; None: not read yet."""
    mutual: bool = False
    """Whether each edge of the graph has its reverse; False: not known of large graphs."""
    structure: Structure | None = None
    """What one call showed of the model's structure; None: not read yet."""
    explained: int = 0
    """Explanations so far: replays become rarer with their number."""


_KNOWN: weakref.WeakKeyDictionary[nn.Module, tuple[Print, list[Known]]]
_KNOWN = weakref.WeakKeyDictionary()


def known(model: Model, graph: Graph) -> Known:
    """The notes on a model and a graph; new ones if either has changed."""
    module = model.call
    if not isinstance(module, nn.Module):
        return Known((), None, model.takes, structure=Structure(False, "it is no module"))
    if not graph.stamps:  # a part of the user's graph: nothing is kept of it
        return _first_notes(model, graph)
    seen, notes = _KNOWN.get(module, (None, []))
    if seen is None or not seen.holds(model.parts):
        # Notes on what the model was before are of no more use.
        notes = []
        _KNOWN[module] = Print.of(model.parts), notes
    for one in notes:
        if one.takes == model.takes and _same(one.graph, graph):
            return one
    found = _first_notes(model, graph)
    notes[:] = [found, *notes][:_KEPT]
    return found


def _first_notes(model: Model, graph: Graph) -> Known:
    try:
        return Known(_graph_print(graph), count_rounds(model, graph), model.takes)
    except ModelError:
        guess = sum(isinstance(part, MessagePassing) for part in model.parts)
        unknown = Structure(False, "its rounds of message passing could not be counted")
        return Known(_graph_print(graph), guess, model.takes, structure=unknown)


def forget(model: Model) -> None:
    """Find everything out again."""
    if isinstance(model.call, nn.Module):
        _KNOWN.pop(model.call, None)


def _tensors(graph: Graph) -> tuple[Tensor | None, ...]:
    return graph.x, graph.edge_index, graph.edge_weight, graph.edge_attr


def _graph_print(graph: Graph) -> tuple[Any, ...]:
    tensors = (None if part is None else weakref.ref(part) for part in _tensors(graph))
    return (graph.stamps, *tensors)


def _same(kept: tuple[Any, ...], graph: Graph) -> bool:
    stamps, *tensors = kept
    return stamps == graph.stamps and all(
        (None if was is None else was()) is now
        for was, now in zip(tensors, _tensors(graph), strict=True)
    )


def is_small(graph: Graph) -> bool:
    """Whether the model may be run on all of the graph to know what to expect."""
    return graph.x.numel() + 32 * (graph.num_nodes + graph.num_edges) <= _SMALL


def ball(graph: Graph, rng: np.random.Generator, most: int = 40, each: int = 12) -> Ids:
    """A few nodes around a random one that hears another, whichever way edges point."""
    starts = rng.integers(0, graph.num_nodes, 32)
    heard = graph.index.start[starts + 1] - graph.index.start[starts]
    found = [int(starts[np.argmax(heard > 0)])]
    out = outward(graph)
    sources, targets = (end.cpu().numpy() for end in graph.edge_index)
    seen = set(found)
    at = 0
    while at < len(found) < most:
        node = np.asarray(found[at : at + 1])
        near = np.concatenate(
            [
                sources[graph.index.edges_into(node)[:each]],
                targets[out.edges_into(node)[:each]],
            ]
        )
        new = [one for one in dict.fromkeys(near.tolist()) if one not in seen]
        found += new[: most - len(found)]
        seen.update(new)
        at += 1
    return np.asarray(found, dtype=np.int64)
