"""Where a study works: its trained models, and its explanations as runs that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from graphsvx import runs
from graphsvx.errors import DataError
from graphsvx.methods.baseline import Method
from graphsvx.results.explanation import Explanation
from graphsvx.runs import identity
from graphsvx.runs.backends import Answer, Chunk, Job
from graphsvx.utils import processes
from graphsvx.utils.console import message
from graphsvx_lab import datasets, zoo
from graphsvx_lab.datasets.base import DataSet
from graphsvx_lab.zoo import Settings, Trained
from graphsvx_lab.zoo.training import training_bar

QUICK_EPOCHS = 10  # a quick study trains its models for 1/10 of the usual epochs


@dataclass(frozen=True, eq=False)
class StudyContext:
    """Everything that a study needs besides its declaration.

    out: the folder of tables and pages.
    runs: the folder of explanations and measurements; a study that is started again goes on there.
    quick: a small version, to see that everything works; its figures mean nothing.
    workers: processes that explain; None: one for each core.
    command: what made the page.
    failures: explanations that could not be made, and why.
    """

    out: Path
    runs: Path
    quick: bool = False
    workers: int | None = None
    command: str = "graphsvx study"
    failures: dict[str, str] = field(default_factory=dict)

    def trained_model(
        self, dataset: str, seed: int = 0, model: str | None = None, **changes: Any
    ) -> Trained:
        """A data set and its model; trained the first time, loaded afterwards.

        changes: of the zoo's settings; such models are kept beside the explanations.
        """
        usual = zoo.settings_for(dataset, model)
        settings = replace(usual, **changes)
        folder = f"models-{identity.short_hash(settings)}" if settings != usual else "models"
        root = self.runs / folder if self.quick or settings != usual else None
        return _trained_model(dataset, seed, self.shorter(settings), root)

    def shorter(self, settings: Settings) -> Settings:
        """Settings with the training of a quick study, if this is one."""
        epochs = max(1, settings.epochs // QUICK_EPOCHS) if self.quick else settings.epochs
        return replace(settings, epochs=epochs)

    def explanations(
        self,
        trained: Trained,
        method: Method,
        queries: Iterable[int],
        *,
        seed: int = 0,
        **options: Any,
    ) -> dict[int, Explanation]:
        """Explain nodes (or graphs, by position), as a run that is kept; by query, ascending.

        The folder is named after everything that decides the result: studies share what they
        have in common, and other settings are another run. Explanations that failed are left out
        and noted in `failures`.
        """
        ids = sorted({int(query) for query in queries})
        dataset, name = trained.dataset, type(method).__name__
        message(f"{trained.card.name}: {name}, {len(ids)} {dataset.task}s")
        is_graph = dataset.task == "graph"
        # Only the graphs in question: a run reads and names everything that it is given.
        run = runs.start(
            trained.model,
            [dataset.graphs[i] for i in ids] if is_graph else dataset.graph,
            nodes=None if is_graph else ids,
            graphs=range(len(ids)) if is_graph else None,
            out=self.folder(trained, name, method, ids, seed, options, "these graphs"),
            method=method,
            backend=InProcess() if self.workers == 1 else runs.Local(self.workers),
            seed=seed,
            class_names=dataset.class_names,
            command=self.command,
            retry_failed=True,
            **options,
        )
        for place, reason in run.failures().items():
            query = ids[place] if is_graph else place
            self.failures[f"{trained.card.name}, {name}, {query}"] = reason
        if not is_graph:
            return {e.centres[0]: e for e in run}
        places = {ids[e.graph_index or 0]: e for e in run}
        return {graph: replace(e, graph_index=graph) for graph, e in places.items()}

    def folder(self, trained: Trained, name: str, *settings: Any) -> Path:
        """Where results that rest on these settings are kept; other weights, another folder."""
        weights = identity.of_model(trained.model)["weights"]
        versions = sorted(identity.package_versions().items())
        key = identity.short_hash([weights, trained.dataset.fingerprint, versions, list(settings)])
        return self.runs / trained.card.name / f"{name.lower()}-{key}"


class InProcess:
    """A backend without a process of its own: what the engine knows of a model is kept."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer]:
        """See `graphsvx.runs.backends.Backend`."""
        while (chunk := take()) is not None:
            yield job(chunk)
            if processes.stop_requested():  # the rest of the chunk may have been left out
                raise KeyboardInterrupt


# --- data and models, kept ------------------------------------------------------------------


@lru_cache(maxsize=3)
def _loaded(dataset: str, seed: int) -> DataSet:
    return datasets.load(dataset, seed)


@cache
def _there(dataset: str) -> bool:  # errors are not cached: files may come later
    return bool(_loaded(dataset, 0).graphs)


def why_missing(dataset: str) -> str | None:
    """Why a data set cannot be loaded (its raw files are not there), or None."""
    try:
        _there(dataset)
    except DataError as error:
        return str(error)
    return None


@lru_cache(maxsize=6)
def _trained_model(dataset: str, seed: int, settings: Settings, root: Path | None) -> Trained:
    path = zoo.checkpoint_path(dataset, settings.model, seed, root)
    return _kept(path, _loaded(dataset, seed), seed, settings)


def _kept(path: Path, data: DataSet, seed: int, settings: Settings) -> Trained:
    """The model in a file; trained if there is none with exactly these settings."""
    stored = zoo.load(path, dataset=data) if path.exists() else None
    if stored is None or stored.card.settings != settings:
        with training_bar(f"training {data.name}, seed {seed}") as progress:
            zoo.save(zoo.train(data, settings.model, seed, progress, settings=settings), path)
        stored = zoo.load(path, dataset=data)
    return stored


MakeModel = Callable[[StudyContext, str, int], Trained]
"""A trained model of a data set and seed."""


def model_of(change: Callable[[DataSet], DataSet], settings: Settings, name: str) -> MakeModel:
    """A model with these settings of a data set after `change`; trained once, then loaded."""

    @lru_cache(maxsize=2)
    def trained(dataset: str, seed: int, used: Settings, folder: Path) -> Trained:
        data = change(_loaded(dataset, seed))
        key = identity.short_hash([used, data.fingerprint])
        return _kept(folder / f"{dataset}-{name}-{key}-seed{seed}.safetensors", data, seed, used)

    return lambda context, dataset, seed: trained(
        dataset, seed, context.shorter(settings), context.runs / "models-of-changed-data"
    )
