"""The saved form of explanations: round trips, and the JSON Schema document."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphsvx import Explanation
from graphsvx.errors import DataError
from graphsvx.results import serialize
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import CellCredit, Credit, Interactions
from graphsvx.results.details import (
    Balance,
    BayesianNetwork,
    ChangeProbability,
    FieldRecord,
    GeneratedGraph,
    GraphTypes,
    Groups,
    Selection,
)
from graphsvx.runs import arrow_schema
from tests.results.examples import explanations

NAMES = (
    "exact", "paper", "nodes", "link", "contrast", "edges", "groups", "reference node",
    "reference class", "reference vector", "balance", "lasso", "tolerance", "GNNExplainer",
    "GraphLIME", "Greedy", "IntegratedGradients", "LIME", "PGExplainer", "PGMExplainer", "Random",
    "Saliency", "SHAP", "graph", "XGNN",
)  # fmt: skip
DOCUMENT = Path(__file__).parents[2] / "docs" / "schema.json"


def equal(a: Any, b: Any) -> bool:
    """Same types and bits, NaN equal to NaN; compared without the code that saves."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.detach().cpu().numpy().tobytes() == b.detach().cpu().numpy().tobytes()
        )
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def through_json(explanation: Explanation) -> Explanation:
    text = json.dumps(explanation.to_dict(), allow_nan=False)
    return Explanation.from_dict(json.loads(text))


def through_arrow(explanation: Explanation) -> Explanation:
    return arrow_schema.read_row(arrow_schema.to_table([0], [explanation]), 0)


def test_the_examples_are_those_named_above() -> None:
    assert set(explanations()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_explanation_of_each_kind_survives_json_and_arrow(name) -> None:
    explanation = explanations()[name]
    assert equal(through_json(explanation), explanation)
    assert equal(through_arrow(explanation), explanation)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_explanation_validates_against_the_document(name, tmp_path) -> None:
    path = tmp_path / "explanation.json"
    explanations()[name].save(path)
    validator = jsonschema.Draft202012Validator(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    assert [error.message for error in validator.iter_errors(json.loads(path.read_text()))] == []


def test_the_document_is_current() -> None:
    """It is `json.dumps(serialize.json_schema(Explanation), indent=2)` and a line break."""
    schema = serialize.json_schema(Explanation)
    assert json.loads(DOCUMENT.read_text(encoding="utf-8")) == schema
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"target": "1"}, "target must be an integer, got '1'"),
        ({"kind": "house"}, "house"),
        ({"surprise": 1}, "has no surprise"),
        ({"selection": {"chosen": 1}}, "Selection needs players"),
        ({"bases": [[1.0]]}, "expected an array"),
        ({"network": []}, "BayesianNetwork"),
    ],
)
def test_a_record_of_another_form_is_refused_by_reader_and_document(change, problem) -> None:
    record = {**explanations()["exact"].to_dict(), **change}
    with pytest.raises(DataError, match=problem):
        Explanation.from_dict(record)
    validator = jsonschema.Draft202012Validator(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    assert not validator.is_valid(record)


@pytest.mark.parametrize("field", ["predictions", "bases"])
def test_a_prediction_that_contradicts_base_and_credit_is_refused(field) -> None:
    record = explanations()["exact"].to_dict()
    record[field] = [value + 0.1 for value in record[field]]
    with pytest.raises(DataError, match="base, credit and residual add up to"):
        Explanation.from_dict(record)


def test_an_integer_of_5000_digits_is_refused(tmp_path) -> None:
    (tmp_path / "file.json").write_text(f'{{"format": {"1" * 5000}}}')
    with pytest.raises(DataError, match="cannot be read as an explanation"):
        Explanation.load(tmp_path / "file.json")


def test_another_version_is_refused() -> None:
    record = {**explanations()["exact"].to_dict(), "version": 1}
    with pytest.raises(DataError, match="version 1, this graphsvx reads version 2; use the"):
        Explanation.from_dict(record)


def test_values_of_a_users_own_method_stay_in_extra() -> None:
    record = {**explanations()["Random"].to_dict(), "extra": {"mine": [1, {"two": None}]}}
    assert Explanation.from_dict(record).extra == {"mine": [1, {"two": None}]}


# --- any record ------------------------------------------------------------------------------

numbers = st.floats(allow_infinity=False, width=64)
finite = st.floats(allow_infinity=False, allow_nan=False)
ids = st.integers(0, 2**40)
words = st.text(max_size=4)


def tuples(of: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=most).map(tuple)


def optional(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


games = st.builds(GameReport, words, ids, st.booleans(), ids, ids, ids, optional(finite), words)
certificates = st.builds(
    Certificate, tuples(games), numbers, ids, optional(ids), tuples(words), optional(words),
    optional(st.booleans()),
)  # fmt: skip
members = st.dictionaries(words, tuples(ids))
records = {
    "graph_index": ids,
    "graph_name": words,
    "reference": ids | words | tuples(finite),
    "groups": st.builds(
        Groups, members, members, st.dictionaries(words, tuples(st.tuples(ids, ids)))
    ),
    "types": st.builds(
        GraphTypes, st.booleans(), tuples(words), tuples(ids), tuples(ids),
        tuples(st.tuples(words, words, words)), tuples(ids), tuples(words),
        *[st.lists(ids, max_size=3).map(lambda v: torch.tensor(v, dtype=torch.int64))] * 4,
        optional(ids),
    ),
    "selection": st.builds(Selection, ids, ids, optional(finite), numbers),
    "balance": st.builds(Balance, finite, finite, numbers),
    "removed": tuples(tuples(words)),
    "neighbours": tuples(ids),
    "masked_scores": tuples(numbers),
    "questions_trained_on": ids,
    "network": st.builds(
        BayesianNetwork, tuples(ids), tuples(st.tuples(words, words)), numbers,
        st.dictionaries(words, numbers),
        tuples(st.builds(ChangeProbability, ids, numbers, numbers)),
    ),
    "generated": st.builds(
        GeneratedGraph, tuples(ids), tuples(tuples(finite)), st.tuples(tuples(ids), tuples(ids)),
        numbers, numbers, numbers, tuples(finite),
    ),
}  # fmt: skip


@st.composite
def any_explanation(draw: st.DrawFn) -> Explanation:
    outputs = draw(st.lists(ids, min_size=1, max_size=3, unique=True).map(tuple))

    def array(*shape: int, of: st.SearchStrategy[Any] = numbers) -> torch.Tensor:
        count = math.prod(shape)
        dtype = torch.float64 if of is numbers else torch.int64
        values = draw(st.lists(of, min_size=count, max_size=count))
        # NaN has many bit patterns; JSON's null gives the usual one back.
        values = [math.nan if value != value else value for value in values]  # noqa: PLR0124  (NaN)
        return torch.tensor(values, dtype=dtype).reshape(shape)

    def credit(*ends: int) -> Credit:
        players = draw(st.integers(0, 3))
        names = draw(optional(st.lists(words, min_size=players, max_size=players).map(tuple)))
        shape = (len(outputs), players)
        return Credit(array(*ends, players, of=ids), array(*shape), array(*shape), names)

    def interactions(players: int) -> Interactions:
        sets, order = draw(st.integers(0, 3)), draw(st.integers(1, 3))
        members = array(order, sets, of=st.integers(-1, players - 1))
        shape = (len(outputs), sets)
        return Interactions(
            draw(words), order, members, array(*shape), array(*shape), draw(st.integers(0, 9))
        )

    credits = credit(), credit(), credit(2)
    target, bases, predictions = (
        draw(st.sampled_from(outputs)),
        *(array(len(outputs)) for _ in range(2)),
    )
    certificate, row = draw(certificates), outputs.index(target)
    # What is said to be explained adds up; where it overflows, the prediction is not a number.
    explained = bases[row] + sum(each.values[row].sum() for each in credits) + certificate.residual
    predictions[row] = explained if explained.isfinite() else math.nan
    together = cells = None
    if draw(st.booleans()):
        together = interactions(sum(each.players for each in credits))
        nodes = draw(tuples(ids))
        features = draw(tuples(st.integers(-2, 5)))
        cells = CellCredit(nodes, features, *(array(len(outputs), len(nodes)) for _ in range(2)))
    size, lines = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    classes = array(size, of=ids) if size and draw(st.booleans()) else None
    kinds = ("node", "nodes", "graph", "edge", "model")
    return Explanation(
        kind=draw(st.sampled_from(kinds)),
        centres=draw(tuples(ids)),
        outputs=outputs,
        target=target,
        bases=bases,
        predictions=predictions,
        node_credit=credits[0],
        feature_credit=credits[1],
        edge_credit=credits[2],
        interactions=together,
        cells=cells,
        certificate=certificate,
        field=FieldRecord(
            array(size, of=ids), array(size, of=ids), array(2, lines, of=ids), classes,
            2**41, 2**41,
            draw(optional(st.lists(words, min_size=size, max_size=size).map(tuple))),
        ),
        method=draw(words),
        meaning=draw(words),
        scale=draw(words),
        rather_than=draw(optional(ids)),
        class_names=draw(optional(tuples(words))),
        extra=draw(st.dictionaries(words, finite | st.none() | st.lists(words))),
        **{name: draw(optional(record)) for name, record in records.items()},
    )  # fmt: skip


VALIDATOR = jsonschema.Draft202012Validator(serialize.json_schema(Explanation))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(any_explanation())
def test_any_record_survives_json_and_arrow_and_validates(explanation) -> None:
    assert equal(through_json(explanation), explanation)
    assert equal(through_arrow(explanation), explanation)
    assert VALIDATOR.is_valid(explanation.to_dict())


def test_every_optional_field_is_in_the_property_above() -> None:
    given_by_methods = {
        field.name for field in fields(Explanation)
        if field.default is None
        and field.name
        not in ("rather_than", "class_names", "interactions", "region_errors", "cells")
    }  # fmt: skip
    assert given_by_methods == records.keys()
