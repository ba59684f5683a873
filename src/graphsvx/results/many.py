"""Many explanations as one object, with ways to other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from graphsvx.errors import InputError
from graphsvx.results import summary
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import many_to_pandas
from graphsvx.results.export_shap import many_to_shap
from graphsvx.results.ranking import Players
from graphsvx.results.view_registry import registered_view


class Explanations(Sequence[Explanation]):
    """A list of explanations that can be summed up, drawn and converted as a whole.

    `explain_many(...).collect()` gives one; so does `Explanations(list_of_explanations)`.
    """

    def __init__(self, explanations: Iterable[Explanation]) -> None:
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

    def to_pandas(self, players: Players = "all") -> Any:
        """A long `pandas.DataFrame`: a row per explanation and player."""
        return many_to_pandas(self, players)

    def to_shap(self, data: Any = None, players: Players = "all") -> Any:
        """A `shap.Explanation` of all of them, for shap's beeswarm, heatmap and bar plots.

        `data`: the graph that was explained, or the list of graphs; gives the features' values.
        """
        return many_to_shap(self, data, players)

    def features(self) -> summary.Summary:
        """Credit by feature over all explanations."""
        return summary.features(self)

    def nodes(self, by: summary.By = None) -> summary.Summary:
        """Credit by node, or by role, class or distance of nodes, over all explanations."""
        return summary.nodes(self, by)

    def to_html(self, path: str | Path, data: Any = None) -> None:
        """Write one page with all of them, which opens offline and has a search box."""
        registered_view("html")(list(self), path, data=data)

    def _repr_html_(self) -> str:
        return registered_view("notebook")(list(self))

    def __repr__(self) -> str:
        lines = "".join(f"\n  {explanation!r}" for explanation in self._explanations[:3])
        ending = f"\n  ... {len(self) - 3} more" if len(self) > 3 else ""
        return f"Explanations of {len(self)} predictions:{lines}{ending}"


class ExplanationIterator(Iterator[Explanation]):
    """Explanations, each as it is done; `collect()` waits for all of them."""

    def __init__(self, explanations: Iterator[Explanation]) -> None:
        self._explanations = explanations

    def __next__(self) -> Explanation:
        return next(self._explanations)

    def close(self) -> None:
        """Stop: explanations that are still to come are not made."""
        close = getattr(self._explanations, "close", None)
        if close is not None:
            close()

    def collect(self) -> Explanations:
        """All explanations that are still to come."""
        return Explanations(self)
