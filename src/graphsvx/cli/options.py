"""Options that several commands share, and the checks that need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphsvx.cli import names
from graphsvx.errors import DataError, InputError
from graphsvx_lab.datasets.catalogue import CATALOGUE

if TYPE_CHECKING:
    from graphsvx.methods.baseline import Method

Dataset = Annotated[
    str, typer.Argument(help="A data set (see `graphsvx datasets`) or a saved PyG Data (.pt).")
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The zoo's model: gcn, gat, ...; or your own, as my_module:build or my/file.py:build, "
        "a function or class that returns the model when called without arguments.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Weights of your own model: .safetensors, or a saved state_dict (.pt)."
    ),
]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A checkpoint of the zoo (.safetensors).")
]
MethodName = Annotated[
    str,
    typer.Option(help="The explainer: " + ", ".join(names.METHODS) + ", or a registered one."),
]
Samples = Annotated[int | None, typer.Option(help="Model calls that the explainer may make.")]
Order = Annotated[
    int | None,
    typer.Option(min=1, max=3, help="Interactions of up to so many players: 2 or 3."),
]
Sufficient = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Also find the smallest set of players that alone keeps this share of the score.",
    ),
]
Flip = Annotated[
    bool, typer.Option(help="Also find the smallest set whose removal changes the class.")
]
Hops = Annotated[int | None, typer.Option(help="Nodes up to this distance are players.")]
Few = Annotated[
    int | None, typer.Option(metavar="K", help="Selective: credit for at most K players.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting of the explainer: players=edges, reference=class:2, balance=0.5, "
        "players=subgraph_features, indirect=mean, mask='Paired(stretch=8)', index=STII, "
        "groups='{\"house\": [400, 401]}', ...",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        help="The class to explain, by number or name; by default the predicted one.",
    ),
]
ModelOutput = Annotated[str, typer.Option(help="What the model returns: raw, probs or log_probs.")]
Scale = Annotated[
    str, typer.Option(help="What is explained: probability, logit, log_odds or value.")
]
Seed = Annotated[int, typer.Option(help="Seed of the explainer.")]
ModelSeed = Annotated[int, typer.Option(help="Seed of the data set and its model.")]


@dataclass(frozen=True)
class ModelChoice:
    """Which model to explain, as the command line says it."""

    model: str | None = None
    """A name of the zoo, or "module:attribute" for a model of the user's own."""
    weights: Path | None = None
    checkpoint: Path | None = None
    seed: int = 0

    @property
    def is_own(self) -> bool:
        """Whether it is a model of the user's own."""
        return self.model is not None and ":" in self.model

    def check(self, dataset: str) -> None:
        """Raise for what does not exist or does not go together; reads no file."""
        names.check_dataset(dataset)
        if self.model is not None and not self.is_own:
            names.check_model_name(self.model)
        for option, path in (("--weights", self.weights), ("--checkpoint", self.checkpoint)):
            if path is not None and not path.exists():
                raise DataError(f"{option} {path}: there is no such file")
        if self.weights is not None and not self.is_own:
            raise InputError(
                "--weights are those of your own model; name it with --model my_module:build"
            )
        if self.is_own and self.checkpoint is not None:
            raise InputError("--checkpoint is a model of the zoo; your own has --weights FILE")
        if not self.is_own and self.checkpoint is None and dataset not in CATALOGUE:
            raise InputError(
                f"a saved graph needs a model: --model my_module:build --weights FILE, "
                f"or --checkpoint FILE for {dataset}"
            )


@dataclass(frozen=True)
class MethodChoice:
    """Which explainer, with which settings, as the command line says it."""

    name: str
    samples: int | None = None
    hops: int | None = None
    few: int | None = None
    pairs: tuple[str, ...] = ()
    tolerance: float | None = None
    seconds: float | None = None
    order: int | None = None

    def check(self, choice: ModelChoice) -> None:
        """Raise for names that do not exist, and for a package that is not installed."""
        if not choice.is_own:  # the module of one's own model may register methods
            names.check_method_name(self.name)
        names.check_settings(self.name, self.pairs)
        if self.name in names.BASELINES:
            names.check_extra(names.BASELINES[self.name], "baselines")

    def build(self) -> Method:
        """The explainer with these settings."""
        from graphsvx.estimators import Lasso
        from graphsvx.methods import registry

        settings: dict[str, Any] = {}
        for pair in self.pairs:
            key, equals, text = pair.partition("=")
            if not equals or not key:
                raise InputError(f"--set takes NAME=VALUE, got {pair!r}")
            settings[key.strip()] = registry.parse_setting(text.strip())
        for key in ("samples", "hops", "tolerance", "seconds", "order"):
            if getattr(self, key) is not None:
                settings[key] = getattr(self, key)
        if self.few is not None:
            settings["estimator"] = Lasso(k=self.few)
        return registry.method(self.name, **settings)
