"""The folder, its table, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata

import numpy as np
import pandas
import pytest
import torch

from graphsvx import GraphSVX, explain, runs
from graphsvx.core.fingerprints import stable_repr
from graphsvx.errors import DataError, InputError
from graphsvx.estimators import WLS
from graphsvx.masks import Paired
from graphsvx.results import serialize, summary
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs import store as keeping
from graphsvx.runs.backends import Answer
from graphsvx.utils import processes
from tests.runs import helpers
from tests.runs.helpers import NODES, Moody, ThisProcess, start, world
from tests.worlds import pooled, random_graph, random_model


def test_every_explanation_comes_back_bit_by_bit(reference) -> None:
    model, data = world()
    for query, explanation in zip(range(NODES), reference, strict=True):
        once = explain(model, data, node=query, method=Moody(), seed=3)
        assert serialize.same(explanation, once)
        assert serialize.same(reference[query], once)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (GraphSVX(mask=Paired(), samples=60), {"targets": "all"}),
        (GraphSVX(players="edges", samples=60), {}),
        (GraphSVX(groups={"a": [1, 2], "b": [3]}, feature_groups={"f": [0, 2]}), {}),
        (GraphSVX(reference=1), {"target": 2, "scale": "logit", "class_names": ("x", "y", "z")}),
        (GraphSVX(tolerance=0.5), {"scale": "log_odds"}),
    ],
)
def test_explanations_of_every_method_are_stored_exactly(tmp_path, method, options) -> None:
    model, data = random_model("gat", 1), random_graph(2, nodes=12, chance=0.3)
    run = runs.start(model, data, [7, 0], out=tmp_path / "run", method=method,
                     backend=ThisProcess(), **options)  # fmt: skip
    for node in (0, 7):
        assert serialize.same(run[node], explain(model, data, node=node, method=method, **options))


def test_nan_and_negative_zero_are_stored_exactly() -> None:
    model, data = world()
    explanation = explain(model, data, node=1, method=Moody())
    odd = torch.full_like(explanation.node_credit.errors, torch.nan)
    changed = replace(
        explanation,
        node_credit=replace(
            explanation.node_credit, errors=odd, values=-0.0 * explanation.node_credit.values
        ),
    )
    back = arrow_schema.read_row(arrow_schema.to_table([1], [changed]), 0)
    assert serialize.same(back, changed)
    assert torch.signbit(back.node_values).equal(torch.signbit(changed.node_values))


def test_graphs_are_explained_one_row_each(tmp_path) -> None:
    graphs = [random_graph(seed, nodes=6) for seed in range(4)]
    model = pooled("gcn", "add", 0)
    run = runs.start(model, graphs, graphs=[3, 1], out=tmp_path / "run", backend=ThisProcess())
    assert run.table()["query"].to_pylist() == [1, 3]
    assert run[3].kind == "graph"
    assert run[3].graph_index == 3
    once = explain(model, graphs[3], graph=True)
    assert torch.equal(run[3].node_values, once.node_values)
    with pytest.raises(InputError, match="not nodes="):
        runs.start(model, graphs, [1], out=tmp_path / "other")


def test_pandas_reads_the_parts_as_plain_columns(reference) -> None:
    frame = pandas.read_parquet(reference.folder / "parts")
    assert frame["query"].tolist() == list(range(NODES))
    assert frame["error"].isna().all()
    for name in ("node", "feature"):
        pairs = zip(frame[f"{name}_ids"], frame[f"{name}_values"], strict=True)
        assert all(len(ids) == len(values) for ids, values in pairs)
    total = [a.sum() + b.sum() for a, b in zip(frame["node_values"], frame["feature_values"],
                                               strict=True)]  # fmt: skip
    assert np.allclose(frame["base"] + total, frame["prediction"], atol=1e-9)
    assert frame["exact"].dtype == bool
    assert "seed 3" in frame["certificate"][0]


def test_the_table_has_chosen_columns(reference) -> None:
    assert reference.table(["prediction"]).schema.names == ["prediction"]
    assert reference.table(["prediction"]).num_rows == NODES
    with pytest.raises(InputError, match="no column 'wrong'"):
        reference.table(["wrong"])


def test_the_manifest_says_what_the_run_is(reference) -> None:
    who = json.loads((reference.folder / "run.json").read_text())["identity"]
    assert who["seed"] == 3
    assert who["graph"]["nodes"] == NODES
    assert who["queries"]["count"] == NODES
    assert who["version"]["torch"] == metadata.version("torch")
    assert who["setting"]["method"] == "Moody"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 4}, r"seed \(there: 3, now: 4\)"),
        (
            {"method": Moody(GraphSVX(samples=41, estimator=WLS()))},
            r"method\.inner\.budget\.samples \(there: 40, now: 41\)",
        ),
        ({"target": 1}, r"setting target \(there: nothing, now: 1\)"),
        ({"part": 9}, r"part \(there: 8, now: 9\)"),
        ({"nodes": [1, 2]}, r"queries count \(there: 48, now: 2\)"),
    ],
)
def test_another_setting_is_refused_by_name(reference, change, named) -> None:
    with pytest.raises(DataError, match=named):
        start(reference.folder, **change)


def test_another_model_or_graph_is_refused(reference) -> None:
    model, data = world()
    options = {"method": Moody(), "part": helpers.PART, "seed": 3, "out": reference.folder}
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-9
    with pytest.raises(DataError, match=r"what differs: model weights \([^;]*\)\. "):
        runs.start(model, data, **options)
    data.x[5, 1] += 1e-9
    with pytest.raises(DataError, match="graph sha256"):
        runs.start(world()[0], data, **options)


def test_another_version_is_refused(reference, monkeypatch) -> None:
    monkeypatch.setattr(identity, "package_versions", lambda: {"torch": "1.0"})
    with pytest.raises(DataError, match=r"version torch \(there: .*, now: 1.0\)"):
        start(reference.folder)


def test_identities_change_with_weights_closures_and_graphs() -> None:
    def scaled(by: float):
        net = random_model("gcn", 1)
        return lambda x, edge_index: by * net(x, edge_index)

    assert identity.of_model(scaled(2.0)) == identity.of_model(scaled(2.0))
    assert identity.of_model(scaled(2.0)) != identity.of_model(scaled(3.0))
    a, b = random_graph(1), random_graph(1)
    assert identity.of_graphs([a]) == identity.of_graphs([b])
    b.edge_weight = torch.ones(b.num_edges)
    assert identity.of_graphs([a]) != identity.of_graphs([b])
    assert stable_repr(object()) == "object()"
    assert stable_repr({"b": {2, 1}, "a": torch.ones(2)}) == stable_repr(
        {"a": torch.ones(2), "b": {1, 2}}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "at least one"),
        ({"nodes": [1, 1]}, "1 twice"),
        ({"nodes": [0, 48]}, "0 to 47, got 48"),
        ({"nodes": [-1]}, "got -1"),
        ({"nodes": ["a"]}, "integer"),
        ({"part": 0}, "part must be an integer of at least 1"),
        ({"scale": "wrong"}, "scale must be .probability"),
        ({"wrong": 1}, "does not take 'wrong'"),
        ({"graphs": [1]}, "data is one graph"),
    ],
)
def test_wrong_arguments_make_no_folder(tmp_path, change, message) -> None:
    with pytest.raises(InputError, match=message):
        start(tmp_path / "run", **change)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_a_run_is_refused(tmp_path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DataError, match=r"not empty and holds no run \(it has thesis.tex\)"):
        start(tmp_path)
    with pytest.raises(DataError, match="holds no run"):
        runs.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        runs.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": "graphsvx.run", "version": 99}')
    with pytest.raises(DataError, match="version 99"):
        runs.open(tmp_path)


def test_damaged_queries_are_found_and_mended(tmp_path) -> None:
    out = tmp_path / "run"
    start(out, nodes=[3, 4])
    good = (out / "queries.parquet").read_bytes()
    start(tmp_path / "other", nodes=[3, 5])
    (out / "queries.parquet").write_bytes((tmp_path / "other" / "queries.parquet").read_bytes())
    with pytest.raises(DataError, match="is damaged"):
        runs.open(out)
    start(out, nodes=[3, 4])
    assert (out / "queries.parquet").read_bytes() == good


def test_missing_explanations_are_reported(reference) -> None:
    with pytest.raises(InputError, match="48 is not among the 48"):
        reference[48]
    assert "48 of 48" in repr(reference)
    assert len(reference) == NODES


def test_the_summary_is_that_of_the_explanations(reference) -> None:
    overview = reference.summary()
    plain = summary.features(list(reference))
    assert np.array_equal(overview.features.matrix, plain.matrix, equal_nan=True)
    assert sum(class_summary.explanations for class_summary in overview.classes.values()) == NODES
    for target, class_summary in summary.by_class(list(reference)).items():
        mine = overview.classes[target]
        lines = {line.key: line for line in mine.top()}
        for line in class_summary.top():
            assert lines[line.key].mean == pytest.approx(line.mean)
            assert lines[line.key].low == pytest.approx(line.low)
    assert {line.key for line in overview.roles.top()} <= {1, 2}


def test_chunks_follow_the_time_that_queries_take(tmp_path) -> None:
    queries = np.arange(1000)
    nothing = np.zeros(1000, dtype=bool)
    progress = keeping.RunProgress(None, queries, 1000, nothing, nothing)
    scheduler = keeping.Scheduler(progress)
    assert scheduler.take() == (0,)
    for _ in range(5):
        chunk = scheduler.take()
        scheduler.learn(Answer(chunk, None, 0.01 * len(chunk)))
    assert 80 <= len(scheduler.take()) <= 100
    for _ in range(20):
        scheduler.learn(Answer((1,), None, 30.0))
    assert len(scheduler.take()) == 1
    assert scheduler.put_back((1, 2)) == []
    assert scheduler.take() == (1,)
    assert scheduler.put_back((1,)) == []
    assert scheduler.put_back((1,)) == [1]


def test_no_more_chunks_are_taken_than_there_are_workers() -> None:
    """Back-pressure: a million queries do not sit in memory."""
    taken = 0

    def take() -> int:
        nonlocal taken
        taken += 1
        return taken

    results = processes.imap_unordered(abs, take, 2)
    for count in range(1, 20):
        next(results)
        assert taken <= count + 3
    results.close()


def test_runs_keep_interactions_and_sets_of_players(tmp_path) -> None:
    model, data = random_model("gcn", 1), random_graph(4, nodes=8, chance=0.3)
    method = GraphSVX(players="nodes", order=2)
    run = runs.start(
        model, data, [1, 2], out=tmp_path / "run", method=method, sufficient=0.9, flip=True,
        backend=ThisProcess(), progress=False, feature_names=["a", "b", "c"],
    )  # fmt: skip
    once = explain(model, data, node=2, method=method, feature_names=["a", "b", "c"])
    again = run[2]
    assert again.answers == (once.sufficient(0.9), once.flip())
    assert again.together(3) == once.together(3)
    row = run.table().to_pylist()[1]
    place = row["interaction_values"].index(once.together(1)[0].value)
    assert row["interaction_players"][place] == list(once.together(1)[0].players)
    assert row["interaction_index"] == "k-SII"
    assert row["interaction_errors"] == once.interactions.errors[0].tolist()
    assert serialize.same(replace(again, answers=()), once)
    with pytest.raises(DataError, match="flip"):
        runs.start(
            model, data, [1, 2], out=tmp_path / "run", method=method, sufficient=0.9,
            backend=ThisProcess(), progress=False, feature_names=["a", "b", "c"],
        )  # fmt: skip


def test_a_chunk_without_answers_is_an_empty_table() -> None:
    """A run may be stopped before the first answer of a chunk."""
    assert arrow_schema.to_table([], []).num_rows == 0
