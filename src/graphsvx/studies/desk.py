"""Where a study works: its models, its explanations as runs, and what it tells while it works."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console

from graphsvx import data, runs, zoo
from graphsvx.errors import DataError
from graphsvx.explanation import Explanation
from graphsvx.methods import Method
from graphsvx.runs import identity
from graphsvx.zoo import Settings, Trained
from graphsvx.zoo.progress import training_bar

QUICK_EPOCHS = 10
"""A quick study trains its models for this fraction (1/10) of the usual epochs."""


@dataclass(frozen=True, eq=False)
class Desk:
    """Everything that a study needs besides its own settings.

    out: the folder of its page, table and pictures.
    runs: the folder of its explanations; a study that is started again goes on from there.
    quick: a small version, to see that everything works; its figures mean nothing.
    workers: processes that explain; None: one for each core.
    command: what made the page, for its first line.
    """

    out: Path
    runs: Path
    quick: bool = False
    workers: int | None = None
    command: str = "graphsvx study"
    failures: dict[str, str] = field(default_factory=dict)
    """Explanations that could not be made, and why: told at the end of the page."""

    def pick(self, full: Any, quick: Any) -> Any:
        """One of two settings: of the whole study, or of the quick one."""
        return quick if self.quick else full

    def say(self, text: str) -> None:
        """A line on standard error."""
        Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)

    def world(self, dataset: str, seed: int = 0, model: str | None = None) -> Trained:
        """A data set and its trained model; trained the first time, loaded afterwards."""
        root = self.runs / "models" if self.quick else None
        return _world(dataset, seed, zoo.settings_for(dataset, model), root, self.quick)

    def variant(self, dataset: str, seed: int, settings: Settings) -> Trained:
        """The same with settings of its own, kept beside the explanations."""
        digest = hashlib.sha256(identity.words(settings).encode()).hexdigest()[:12]
        return _world(dataset, seed, settings, self.runs / f"models-{digest}", self.quick)

    def missing(self, dataset: str) -> str | None:
        """Why a data set cannot be had here (its raw files are not there), or None."""
        try:
            data.load(dataset, 0)
        except DataError as error:
            return str(error)
        return None

    def explanations(
        self,
        world: Trained,
        method: Method,
        queries: Iterable[int],
        *,
        label: str,
        seed: int = 0,
        **options: Any,
    ) -> list[Explanation]:
        """Explain nodes (or graphs, by position) of a world, as a run that is kept.

        The folder is named after world, `label` and everything that decides the result, so
        studies share what they have in common, and other settings are another run. Explanations
        come in ascending order of their queries; those that failed are left out and told.
        """
        asked = sorted({int(one) for one in queries})
        where = self.folder(world, label, (method, asked, seed, options))
        whole = world.dataset.task == "graph"
        self.say(f"{world.card.name}: {label}, {len(asked)} {'graphs' if whole else 'nodes'}")
        run = runs.start(
            world.model,
            list(world.dataset.graphs) if whole else world.dataset.graph,
            nodes=None if whole else asked,
            graphs=asked if whole else None,
            out=where, method=method, engine=runs.Local(self.workers), seed=seed,
            class_names=world.dataset.class_names, command=self.command, retry_failed=True,
            **options,
        )  # fmt: skip
        for query, reason in run.failures().items():
            self.failures[f"{world.card.name}, {label}, {query}"] = reason
        return list(run)

    def folder(self, world: Trained, label: str, settings: Sequence[Any] = ()) -> Path:
        """Where results that rest on these settings are kept; other weights, another folder."""
        weights = identity.of_model(world.model)["weights"]
        versions = sorted(identity.versions().items())
        text = identity.words([weights, world.dataset.fingerprint, versions, list(settings)])
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        plain = "".join(c if c.isalnum() else "-" for c in label.lower()).strip("-")
        return self.runs / world.card.name / f"{plain}-{digest}"


def query_of(explanation: Explanation) -> int:
    """The node, or the position of the graph, that an explanation of a run is about."""
    if explanation.kind == "graph":
        return int(explanation.extra["graph"])
    return explanation.centres[0]


@lru_cache(maxsize=6)
def _world(dataset: str, seed: int, settings: Settings, root: Path | None, quick: bool) -> Trained:
    """A model with exactly these settings; one that was kept with others is replaced."""
    if quick:
        settings = replace(settings, epochs=max(1, settings.epochs // QUICK_EPOCHS))
    with training_bar(f"training {dataset}, seed {seed}") as progress:
        return zoo.ensure(dataset, settings.model, seed, progress, root, settings=settings)
