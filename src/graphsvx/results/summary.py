"""Global views: many explanations summed up, by feature, by node, by role or by class.

explanations = list(explain_many(model, data, nodes))
features = summary.features(explanations)
features.top(5)                      # the features that matter most on the whole
features.matrix                      # [explanations, features]: ready for a beeswarm
summary.nodes(explanations, by=roles)       # how much credit goes to each role
summary.by_class(explanations)              # a summary for each explained class
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from torch import Tensor

from graphsvx.core.arrays import Floats, Ids
from graphsvx.errors import InputError
from graphsvx.results.credit import PlayerKind, Ranking
from graphsvx.results.explanation import Explanation, view
from graphsvx.results.export import many_to_pandas, many_to_shap
from graphsvx.utils.constraints import checked, describes_arguments
from graphsvx.utils.imports import require_extra
from graphsvx.utils.printable import html_table

Key = int | str | tuple[int, int]
Credits = dict[Key, tuple[str, float]]
"""Name and credit of each player."""
_ARGUMENTS = {
    "explanations": "of many questions about one model.",
    "of": "`features`, `nodes` or `edges`.",
}
By = Literal["class", "hops"] | Mapping[int, Any] | Sequence[Any] | Tensor | None


@dataclass(frozen=True)
class Line:
    """One player over many explanations."""

    key: Key
    name: str
    mean: float
    mean_absolute: float
    std: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, eq=False)
class Summary:
    """Credit of the same players over many explanations.

    A player that did not play in an explanation got nothing there: it counts as 0 in means and
    spreads and is NaN in `matrix`; `count` says how often it played.
    """

    keys: tuple[Key, ...]
    """Column, node id, edge, role or class of each player."""
    names: tuple[str, ...]
    matrix: Floats
    """[explanations, players]: signed credit; NaN where a player did not play."""
    outputs: tuple[int, ...]
    """The output that each explanation is about."""

    @property
    def explanations(self) -> int:
        """How many explanations are summed up."""
        return len(self.matrix)

    @property
    def filled(self) -> Floats:
        """`matrix` with 0 where a player did not play."""
        return np.nan_to_num(self.matrix, nan=0.0)

    @property
    def count(self) -> Ids:
        """In how many explanations each player played."""
        return (~np.isnan(self.matrix)).sum(0)

    @property
    def mean(self) -> Floats:
        """Mean signed credit."""
        return np.asarray(self.filled.mean(0))

    @property
    def mean_absolute(self) -> Floats:
        """Mean absolute credit: global importance."""
        return np.asarray(np.abs(self.filled).mean(0))

    @property
    def std(self) -> Floats:
        """Standard deviation of the signed credit over explanations (n - 1; 0 for a single one)."""
        if self.explanations < 2:
            return np.zeros(len(self.keys))
        return np.asarray(self.filled.std(0, ddof=1))

    def interval(self, z: float = 1.96) -> Floats:
        """mean +- z std / sqrt(n), [2, players]: 95 % of the mean by default."""
        half = z * self.std / np.sqrt(self.explanations)
        return np.stack([self.mean - half, self.mean + half])

    def quantiles(self, at: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Floats:
        """Quantiles of the signed credit over explanations, [len(at), players]."""
        return np.asarray(np.quantile(self.filled, at, axis=0))

    def top(self, k: int | None = None, by: Ranking = "absolute") -> list[Line]:
        """The `k` players with the largest mean absolute (or signed mean) credit, best first."""
        absolute = checked(by, Ranking, "by") == "absolute"
        score = self.mean_absolute if absolute else self.mean
        columns = (self.mean, self.mean_absolute, self.std, *self.interval(), self.count)
        return [
            Line(self.keys[i], self.names[i], *(column[i].item() for column in columns))
            for i in np.argsort(-score, kind="stable")[:k].tolist()
        ]

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row per player, most important first (needs pandas)."""
        pandas = require_extra("pandas", "data")
        return pandas.DataFrame([asdict(line) for line in self.top()])

    def _repr_html_(self) -> str:
        rows = []
        for line in self.top(20):
            interval = f"{line.low:+.4f} to {line.high:+.4f}"
            importance, mean = f"{line.mean_absolute:.4f}", f"{line.mean:+.4f}"
            rows.append((line.name, importance, mean, interval, line.count))
        hidden = len(self.keys) - len(rows)
        caption = f"{self.explanations} explanations"
        caption += f", {hidden} more players" if hidden else ""
        columns = ("player", "importance", "mean credit", "95 % interval", "played")
        return html_table(caption, columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, ready for JSON: one record a player, most important first."""
        return {
            "explanations": self.explanations,
            "players": [asdict(line) for line in self.top()],
        }


@describes_arguments(_ARGUMENTS, "Credit of each feature in each explanation.")
def features(explanations: Iterable[Explanation]) -> Summary:
    """Credit by feature (or group of features)."""
    return _summary(explanations, lambda explanation: _named(explanation, "feature"))


def nodes(explanations: Iterable[Explanation], by: By = None, *, share: bool = False) -> Summary:
    """Credit by node, or summed over the nodes of each role, class or distance.

    Args:
        explanations: with nodes as players.
        by: None (each node for itself), "class" (`data.y`), "hops", or the role of each node: a
            mapping, sequence or tensor by node id.
        share: divide by prediction - base, so that "these nodes carry 85 % of what there is to
            explain" can be read off.

    Returns:
        Credit of each node or role in each explanation.

    """

    def credit(explanation: Explanation) -> Credits:
        named = _named(explanation, "node")
        if by is not None:
            named = _by_role(explanation, named, by)
        gap = explanation.prediction - explanation.base if share else 1.0
        if abs(gap) < 1e-9:
            raise InputError(
                f"a share needs something to be shared, but the prediction of {explanation.title} "
                f"is its base value; leave it out or use share=False"
            )
        return {key: (name, value / gap) for key, (name, value) in named.items()}

    return _summary(explanations, credit)


@describes_arguments(_ARGUMENTS, "Credit of each edge in each explanation.")
def edges(explanations: Iterable[Explanation]) -> Summary:
    """Credit by edge (or group of edges)."""
    return _summary(explanations, lambda explanation: _named(explanation, "edge"))


@describes_arguments(_ARGUMENTS, "Summaries by output.")
def by_class(
    explanations: Iterable[Explanation],
    of: Callable[[Iterable[Explanation]], Summary] = features,
) -> dict[int, Summary]:
    """One summary for each explained output: what makes the model say this class?"""
    parts: dict[int, list[Explanation]] = {}
    for explanation in explanations:
        parts.setdefault(explanation.target, []).append(explanation)
    return {target: of(parts[target]) for target in sorted(parts)}


def _named(explanation: Explanation, kind: PlayerKind) -> Credits:
    """Players by key; a group of players goes by its name, which is the same everywhere."""
    credit = explanation.credit_by_kind[kind]
    keys: list[Any] = credit.keys() if kind == "edge" else credit.ids.tolist()
    unnamed, values = credit.default_names(kind), credit.values[explanation.row].tolist()
    players = zip(keys, unnamed, credit.names or unnamed, values, strict=True)
    return {key if name == by_id else name: (name, value) for key, by_id, name, value in players}


def _by_role(explanation: Explanation, players: Credits, by: By) -> Credits:
    """Credit of nodes summed by their role, which is given by id or name."""
    (roles, word), sums = _roles(explanation, by), Credits()
    for node, (name, (_, value)) in zip(
        explanation.node_ids.tolist(), players.items(), strict=True
    ):
        if node not in roles and name not in roles:
            raise InputError(f"by must give the role of every node that plays, got none for {name}")
        role = roles[node if node in roles else name]
        label = role if isinstance(role, str) else f"{word} {role}"
        sums[role] = (label, sums.get(role, ("", 0.0))[1] + value)
    return sums


def _roles(explanation: Explanation, by: By) -> tuple[dict[Any, Any], str]:
    """The role of each node by id (or name), and what a role without a name is called."""
    if not isinstance(by, str):
        values: Any = by
        roles = values.tolist() if hasattr(values, "tolist") else values
        return dict(roles if isinstance(roles, Mapping) else enumerate(roles)), "role"
    if by not in ("class", "hops"):
        raise InputError(f'by must be "class", "hops" or the role of each node, got {by!r}')
    field, types = explanation.field, explanation.hetero
    column = field.hops if by == "hops" else field.classes
    if column is None:
        raise InputError('by="class" needs the class of each node; set data.y')
    roles = column.tolist()
    if by == "class" and types is not None:
        roles = [types.node_types[role] for role in roles]
    return dict(zip(field.ids.tolist(), roles, strict=True)), by


def _summary(
    explanations: Iterable[Explanation],
    credit: Callable[[Explanation], Credits],
) -> Summary:
    outputs, rows = [], []
    for explanation in explanations:
        outputs.append(explanation.target)
        rows.append(credit(explanation))
    if not rows:
        raise InputError("expected at least one explanation, got none")
    names = {key: name for row in rows for key, (name, _) in row.items()}
    places: dict[Any, int] = {tuple: 1, str: 2}  # ids in order, then edges, then named groups
    keys = sorted(names, key=lambda key: (places.get(type(key), 0), key))
    matrix = np.array([[row.get(key, ("", np.nan))[1] for key in keys] for row in rows])
    matrix = matrix.reshape(len(rows), len(keys))
    return Summary(tuple(keys), tuple(map(names.__getitem__, keys)), matrix, tuple(outputs))


# --- many explanations as one object -------------------------------------------------------


class Explanations(Sequence[Explanation]):
    """A list of explanations that can be summed up, drawn and converted as a whole.

    `explain_many(...).collect()` gives one; so does `Explanations(list_of_explanations)`.
    """

    def __init__(self, explanations: Iterable[Explanation]) -> None:
        if not isinstance(explanations, Iterable):
            raise InputError(f"Explanations must be made of explanations, got {explanations!r:.80}")
        self._explanations = tuple(explanations)
        for explanation in self._explanations:
            if not isinstance(explanation, Explanation):
                raise InputError(
                    f"Explanations must be made of explanations, got {type(explanation).__name__}"
                )

    def __len__(self) -> int:
        return len(self._explanations)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        selected = self._explanations[index]
        return selected if isinstance(selected, Explanation) else Explanations(selected)

    to_pandas = many_to_pandas
    to_shap = many_to_shap

    def features(self) -> Summary:
        """Credit by feature over all explanations."""
        return features(self)

    def nodes(self, by: By = None) -> Summary:
        """Credit by node, or by role, class or distance of nodes, over all explanations."""
        return nodes(self, by)

    def to_html(self, path: str | Path, data: Any = None) -> None:
        """Write one page with all of them, which opens offline and has a search box."""
        view("write")(list(self), path, data=data)

    def _repr_html_(self) -> str:
        return view("notebook")(list(self))

    def __repr__(self) -> str:
        lines = "".join(f"\n  {explanation!r}" for explanation in self._explanations[:3])
        ending = f"\n  ... {len(self) - 3} more" if len(self) > 3 else ""
        return f"Explanations of {len(self)} predictions:{lines}{ending}"


class ExplanationIterator(Iterator[Explanation]):
    """Explanations, each as it is done; `collect()` waits for all of them."""

    def __init__(self, explanations: Generator[Explanation, None, None]) -> None:
        self._explanations = explanations

    def __next__(self) -> Explanation:
        return next(self._explanations)

    def close(self) -> None:
        """Stop: explanations that are still to come are not made."""
        self._explanations.close()

    def collect(self) -> Explanations:
        """All explanations that are still to come."""
        return Explanations(self)
