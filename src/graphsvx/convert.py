"""Explanations to and from other forms: JSON, networkx, PyG, shap."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import networkx as nx
import torch
from torch import Tensor

from graphsvx.certificate import Certificate, GameReport
from graphsvx.errors import DataError
from graphsvx.explanation import Credit, Explanation, Neighbourhood
from graphsvx.extras import package
from graphsvx.files import written_whole

FORMAT = "graphsvx.explanation"
VERSION = 1


def _numbers(tensor: Tensor) -> Any:
    """Nested lists; NaN, which JSON does not know, becomes null."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(one) for one in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return clean(tensor.tolist())


def _tensor(value: Any, dtype: torch.dtype, shape: tuple[int, ...] | None = None) -> Tensor:
    def fill(one: Any) -> Any:
        if isinstance(one, list):
            return [fill(each) for each in one]
        return math.nan if one is None else one

    made = torch.tensor(fill(value), dtype=dtype)
    return made if shape is None else made.reshape(shape)


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Plain lists and numbers, with a format name and version."""

    def credit(one: Credit) -> dict[str, Any]:
        return {
            "ids": one.ids.tolist(),
            "values": _numbers(one.values),
            "errors": _numbers(one.errors),
            "names": None if one.names is None else list(one.names),
        }

    e = explanation
    near = e.neighbourhood
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": e.kind,
        "centres": list(e.centres),
        "outputs": list(e.outputs),
        "target": e.target,
        "rather_than": e.rather_than,
        "scale": e.scale,
        "method": e.method,
        "meaning": e.meaning,
        "class_names": None if e.class_names is None else list(e.class_names),
        "bases": _numbers(e.bases),
        "predictions": _numbers(e.predictions),
        "nodes": credit(e.node_credit),
        "features": credit(e.feature_credit),
        "edges": credit(e.edge_credit),
        "certificate": asdict(e.certificate),
        "neighbourhood": {
            "ids": near.ids.tolist(),
            "hops": near.hops.tolist(),
            "edge_index": near.edge_index.tolist(),
            "classes": None if near.classes is None else near.classes.tolist(),
            "num_nodes": near.num_nodes,
            "num_features": near.num_features,
        },
        "extra": e.extra,
    }


def from_dict(record: dict[str, Any]) -> Explanation:
    """The inverse of `to_dict`; a DataError if this is no such record."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f"this is no saved explanation: its format is not {FORMAT!r}")
    if record.get("version") != VERSION:
        raise DataError(
            f"the explanation has version {record.get('version')}, this graphsvx reads "
            f"version {VERSION}; use the graphsvx that wrote it"
        )
    try:
        return _from_dict(record)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the saved explanation is damaged: {type(error).__name__}: {error}"
        ) from error


def _from_dict(record: dict[str, Any]) -> Explanation:
    outputs = len(record["outputs"])

    def credit(one: dict[str, Any], ends: bool = False) -> Credit:
        ids = _tensor(one["ids"], torch.long, (2, -1) if ends else (-1,))
        players = len(one["values"][0]) if one["values"] else 0
        shape = (outputs, players)
        return Credit(
            ids,
            _tensor(one["values"], torch.float64, shape),
            _tensor(one["errors"], torch.float64, shape),
            None if one["names"] is None else tuple(one["names"]),
        )

    given = dict(record["certificate"])
    given["games"] = tuple(GameReport(**game) for game in given["games"])
    given["checks"] = tuple(given["checks"])
    near = record["neighbourhood"]
    names = record["class_names"]
    return Explanation(
        kind=record["kind"],
        centres=tuple(record["centres"]),
        outputs=tuple(record["outputs"]),
        target=record["target"],
        rather_than=record["rather_than"],
        bases=_tensor(record["bases"], torch.float64),
        predictions=_tensor(record["predictions"], torch.float64),
        node_credit=credit(record["nodes"]),
        feature_credit=credit(record["features"]),
        edge_credit=credit(record["edges"], ends=True),
        certificate=Certificate(**given),
        neighbourhood=Neighbourhood(
            ids=_tensor(near["ids"], torch.long),
            hops=_tensor(near["hops"], torch.long),
            edge_index=_tensor(near["edge_index"], torch.long, (2, -1)),
            classes=None if near["classes"] is None else _tensor(near["classes"], torch.long),
            num_nodes=near["num_nodes"],
            num_features=near["num_features"],
        ),
        method=record["method"],
        meaning=record["meaning"],
        scale=record["scale"],
        class_names=None if names is None else tuple(names),
        extra=record["extra"],
    )


def save(explanation: Explanation, path: str | Path) -> None:
    """Write JSON, whole or not at all."""
    with written_whole(path) as part:
        part.write_text(json.dumps(to_dict(explanation), allow_nan=False), encoding="utf-8")


def load(path: str | Path) -> Explanation:
    """Read JSON written by `save`."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read as an explanation: {error}") from error
    return from_dict(record)


def to_networkx(explanation: Explanation) -> nx.DiGraph:
    """The neighbourhood with credit on its nodes (the explained ones have 0) and edges."""
    near = explanation.neighbourhood
    graph = nx.DiGraph(
        base=explanation.base, prediction=explanation.prediction, target=explanation.target
    )
    credit = explanation.nodes
    errors = dict(zip(explanation.node_ids.tolist(), explanation.node_errors.tolist(), strict=True))
    for position, (node, hops) in enumerate(
        zip(near.ids.tolist(), near.hops.tolist(), strict=True)
    ):
        about: dict[str, Any] = {
            "credit": credit.get(node, 0.0),
            "error": errors.get(node, 0.0),
            "hops": hops,
            "explained": node in explanation.centres,
        }
        if near.classes is not None:
            about["label"] = int(near.classes[position])
        graph.add_node(node, **about)
    edges = explanation.edges
    for u, v in near.edge_index.t().tolist():
        graph.add_edge(u, v, **({"credit": edges[(u, v)]} if (u, v) in edges else {}))
    return graph


def to_pyg(explanation: Explanation) -> Any:
    """A `torch_geometric.explain.Explanation` over all nodes of the graph.

    `node_mask` is [nodes, 1] with the signed credit of each node (the explained one has 0, as
    have all nodes that do not play); `feature_credit` is [features].
    """
    from torch_geometric.explain import Explanation as PyGExplanation  # noqa: PLC0415  (slow)

    near = explanation.neighbourhood
    node_mask = torch.zeros(near.num_nodes, 1)
    node_mask[explanation.node_ids, 0] = explanation.node_values.float()
    features = torch.zeros(near.num_features)
    features[explanation.feature_ids] = explanation.feature_values.float()
    return PyGExplanation(
        node_mask=node_mask,
        feature_credit=features,
        target=torch.tensor([explanation.target]),
        prediction_score=explanation.prediction,
        base=explanation.base,
    )


def to_shap(explanation: Explanation) -> Any:
    """A `shap.Explanation`: features, then nodes, with names that say which."""
    shap = package("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))
    values = torch.cat([explanation.feature_values, explanation.node_values])
    names = [f"feature {i}" for i in explanation.feature_ids.tolist()]
    names += [f"node {i}" for i in explanation.node_ids.tolist()]
    return shap.Explanation(
        values=values.numpy(), base_values=explanation.base, feature_names=names
    )


def same(a: Explanation, b: Explanation) -> bool:
    """Bit-equal in everything that is saved."""
    return json.dumps(to_dict(a), sort_keys=True) == json.dumps(to_dict(b), sort_keys=True)
