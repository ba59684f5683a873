"""Options that several commands share, and what their texts mean; the checks need no torch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from graphsvx.errors import DataError, InputError, MissingExtraError
from graphsvx.utils.printable import did_you_mean
from graphsvx_lab.datasets.catalogue import CATALOGUE, suggestion

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphsvx.methods.baseline import Method

KEYWORD = Parameter.KEYWORD_ONLY

# --- names, checked before torch is imported -----------------------------------------------

METHODS: dict[str, tuple[str, ...]] = {
    "graphsvx": ("graphsvx.GraphSVX", "graphsvx.FlatSettings"),
    "graphsvx-paper": ("graphsvx.GraphSVX", "graphsvx.FlatSettings"),
    "gnnexplainer": ("learned.GNNExplainer",),
    "pgexplainer": ("learned.PGExplainer",),
    "graphlime": ("surrogates.GraphLIME",),
    "pgm-explainer": ("perturbing.PGMExplainer",),
    "xgnn": ("xgnn.XGNN",),
    "lime": ("surrogates.LIME",),
    "shap": ("surrogates.SHAP",),
    "greedy": ("greedy.Greedy",),
    "random": ("perturbing.Random",),
    "saliency": ("gradients.Saliency",),
    "integrated-gradients": ("gradients.IntegratedGradients",),
}
"""Module and name of the classes whose fields are the settings of a method."""

BASELINES = {
    "pgm-explainer": "pgmpy",
    "lime": "lime",
    "shap": "shap",
    "saliency": "captum",
    "integrated-gradients": "captum",
}
"""Packages of the extra `baselines` that methods need."""

ZOO = ("gcn", "gat", "gin", "graphconv", "sage", "rgcn", "released")
"""Models of the zoo; which of them a data set has, the zoo says."""

_ALSO = {"graphsvx-paper": ("dataset",), "pgexplainer": ("load",)}
"""What `registry.method` takes besides the fields."""
_EARLIER = ("regression", "r", "features_of")
"""Earlier names of settings of GraphSVX, which says what they are called now."""


def setting_names(method: str) -> tuple[str, ...]:
    """Names of the settings of a method: the annotated fields of its classes."""
    names = [name for place in METHODS[method] for name in _field_names(*place.split("."))]
    return (*names, *_ALSO.get(method, ()))


def _field_names(module: str, name: str) -> Iterator[str]:
    tree = ast.parse((Path(__file__).parents[1] / "methods" / f"{module}.py").read_text("utf-8"))
    (class_tree,) = (part for part in tree.body if type(part) is ast.ClassDef and part.name == name)
    for field in class_tree.body:
        match field:
            case ast.AnnAssign(target=ast.Name(id=field_name), annotation=annotation):
                if "ClassVar" not in ast.unparse(annotation) and field_name != "trained":
                    yield field_name


def check_method_name(name: str) -> None:
    """Raise for a method that does not exist, with the name that was probably meant."""
    plugins = [point.name for point in entry_points(group="graphsvx.methods")]
    # Once the registry is imported, there may be registered ones: it looks itself.
    if name in METHODS or name in plugins or "graphsvx.methods.registry" in sys.modules:
        return
    names = [*METHODS, *plugins]
    raise InputError(
        f"there is no method {name!r}; {did_you_mean(name, names)}choose one of {', '.join(names)}"
    )


def split_setting(pair: str) -> tuple[str, str]:
    """Name and text of a setting, which is written as NAME=VALUE."""
    name, equals, text = pair.partition("=")
    if not equals or not name:
        raise InputError(f"--set takes NAME=VALUE, got {pair!r}")
    return name.strip(), text.strip()


def check_settings(method: str, pairs: Iterable[str]) -> None:
    """Raise for a setting (NAME=VALUE) that the method does not have, and suggest one."""
    setting_keys = [split_setting(pair)[0] for pair in pairs]
    names = setting_names(method) if method in METHODS else setting_keys
    earlier = _EARLIER if method.startswith("graphsvx") else ()
    for name in setting_keys:
        if name not in (*names, *earlier):
            raise InputError(
                f"{method} has no setting {name!r}; {did_you_mean(name, names)}"
                f"it has {', '.join(sorted(names))}"
            )


def check_extra(package: str, extra: str) -> None:
    """Raise if an optional package is not installed, before the work that it is needed for."""
    if find_spec(package) is None:
        raise MissingExtraError(package, extra)


# --- texts of options ---------------------------------------------------------------------


def number_or_name(text: str | None) -> int | str | None:
    """A class, relation or node, by its number or its name."""
    is_number = text is not None and re.fullmatch("-?[0-9]{1,18}", text)
    return int(str(text)) if is_number else text


def types_of_nodes(graph: Any) -> list[str]:
    """Node types of a typed graph; none of a plain graph."""
    return [store._key for store in graph.node_stores if store._key is not None]


def parse_nodes(graph: Data, text: str, option: str, count: int | None = None) -> list[Any]:
    """Nodes separated by commas: numbers or names, paper:3 or paper:name of typed graphs.

    `paper:1,2` are two papers.
    """
    types = types_of_nodes(graph)
    if not types and not graph.get("node_names"):
        return parse_numbers(text, option, graph.num_nodes or 0, count)
    nodes: list[Any] = []
    kind = ""
    for word in map(str.strip, text.split(",")):
        named, colon, name = word.rpartition(":") if types else ("", "", word)
        kind = named if colon else kind
        node = name if name.startswith("-") else number_or_name(name)
        has_names = kind in types and "names" in graph[kind]
        if types and not (kind and (isinstance(node, int) or has_names)):
            raise InputError(f"{option} takes nodes such as {types[0]}:0, got {text!r}")
        nodes.append((kind, node) if types else node)
    if count is not None and len(nodes) != count:
        raise InputError(f"{option} takes {count} nodes separated by commas, got {text!r}")
    return nodes


def parse_numbers(text: str, option: str, below: int, count: int | None = None) -> list[int]:
    """Numbers and ranges such as 3,7,10-20, each less than `below`; `count` of them if given."""
    number = r"\s*([0-9]{1,18})\s*"
    words = [re.fullmatch(f"{number}(?:-{number})?", word) for word in text.split(",")]
    ranges = [(int(word[1]), int(word[2] or word[1])) for word in words if word]
    largest = max((last for _, last in ranges), default=0)
    if largest >= below:
        raise InputError(f"numbers go from 0 to {below - 1}, got {largest}")
    numbers = [number for first, last in ranges for number in range(first, last + 1)]
    if not all(words) or not numbers or count not in (None, len(numbers)):
        expected = "numbers" if count is None else f"{count} numbers"
        raise InputError(
            f"{option} takes {expected} separated by commas, such as 3,7,10-20; got {text[:80]!r}"
        )
    return numbers


def examples(commands: str) -> str:
    """The end of a command's help, where only paragraphs are lines of their own."""
    lines = [line for line in commands.splitlines() if line]
    return "\n\n".join(["\nExamples:", *lines]) + "\n"


# --- options, which are fields of records ----------------------------------------------------


def with_records(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of the records that it takes."""
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options = []
    for name, parameter in signature(command).parameters.items():
        if name not in records:
            options.append(parameter.replace(annotation=hints[name], kind=KEYWORD))
            continue
        kinds = get_type_hints(records[name], include_extras=True)
        for field in fields(records[name]):
            default, annotation = field.default, kinds[field.name]
            options.append(Parameter(field.name, KEYWORD, default=default, annotation=annotation))

    @wraps(command)
    def call(**values: Any) -> None:
        for name, record in records.items():
            values[name] = record(
                **{field.name: values.pop(field.name) for field in fields(record)}
            )
        command(**values)

    call.__annotations__ = {option.name: option.annotation for option in options}
    vars(call)["__signature__"] = Signature(options)
    return call


def a_file(text: str, *names: str) -> Any:
    """An option that takes a file; `text` is its help."""
    return typer.Option(*names, metavar="FILE", help=text)


def a_folder(text: str) -> Any:
    """An option that takes a folder; `text` is its help."""
    return typer.Option(metavar="FOLDER", help=text)


DATASET = typer.Argument(help="A data set (see `graphsvx datasets`) or a saved PyG Data (.pt).")


@dataclass(frozen=True)
class StoredModel:
    """Where the weights of a model are."""

    weights: Annotated[
        Path | None, a_file("Weights of your own model: .safetensors, or a saved state_dict (.pt).")
    ] = None
    checkpoint: Annotated[Path | None, a_file("A checkpoint of the zoo (.safetensors).")] = None
    model_seed: Annotated[int, typer.Option(help="Seed of the data set and its model.")] = 0


@dataclass(frozen=True)
class ModelChoice(StoredModel):
    """Which model to explain, as the command line says it."""

    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The zoo's model: gcn, gat, ...; or your own, as my_module:build or "
            "my/file.py:build, a function or class that returns the model when called without "
            "arguments.",
        ),
    ] = None

    @property
    def is_own(self) -> bool:
        """Whether it is a model of the user's own."""
        return self.model is not None and ":" in self.model

    def check(self, dataset: str) -> None:
        """Raise for what does not exist or does not go together; reads no file."""
        entry = CATALOGUE.get(dataset)
        if entry is None and not Path(dataset).exists():
            raise DataError(f"{dataset!r} is neither a data set nor a file; {suggestion(dataset)}")
        if entry is not None and entry.extra is not None:
            check_extra("rdkit", entry.extra)
        if self.model is not None and not self.is_own and self.model not in ZOO:
            raise InputError(
                f"the zoo has no model {self.model!r}; {did_you_mean(self.model, ZOO)}choose one "
                f"of {', '.join(ZOO)}, or name your own as my_module:build"
            )
        for option, path in (("--weights", self.weights), ("--checkpoint", self.checkpoint)):
            if path is not None and not path.exists():
                raise DataError(f"{option} {path}: there is no such file")
        if self.weights is not None and not self.is_own:
            raise InputError(
                "--weights are those of your own model; name it with --model my_module:build"
            )
        if self.is_own and self.checkpoint is not None:
            raise InputError("--checkpoint is a model of the zoo; your own has --weights FILE")
        if not self.is_own and self.checkpoint is None and entry is None:
            raise InputError(
                f"a saved graph needs a model: --model my_module:build --weights FILE, "
                f"or --checkpoint FILE for {dataset}"
            )


@dataclass(frozen=True)
class MethodChoice:
    """Which explainer, with which settings, as the command line says it."""

    method: Annotated[
        str,
        typer.Option(help="The explainer: " + ", ".join(METHODS) + ", or a registered one."),
    ] = "graphsvx"
    samples: Annotated[
        int | None, typer.Option(help="Model calls that the explainer may make.")
    ] = None
    hops: Annotated[int | None, typer.Option(help="Nodes up to this distance are players.")] = None
    order: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="Interactions of up to so many players: 2 or 3."),
    ] = None
    few: Annotated[
        int | None, typer.Option(metavar="K", help="Selective: credit for at most K players.")
    ] = None
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting of the explainer: players=edges, reference=class:2, balance=0.5, "
            "players=subgraph_features, indirect=mean, mask='Paired(stretch=8)', index=STII, "
            "groups='{\"house\": [400, 401]}', ...",
        ),
    ] = None

    def check(self, choice: ModelChoice) -> None:
        """Raise for names that do not exist, and for a package that is not installed."""
        if not choice.is_own:  # the module of one's own model may register methods
            check_method_name(self.method)
        check_settings(self.method, self.pairs or ())
        if self.method in BASELINES:
            check_extra(BASELINES[self.method], "baselines")

    def build(self) -> Method:
        """The explainer with these settings."""
        from graphsvx.estimators import Lasso
        from graphsvx.methods import registry

        pairs = map(split_setting, self.pairs or ())
        settings = {name: registry.parse_setting(text) for name, text in pairs}
        for name, value in vars(self).items():
            if name not in ("method", "few", "pairs") and value is not None:
                settings[name] = value
        if self.few is not None:
            settings["estimator"] = Lasso(k=self.few)
        return registry.method(self.method, **settings)


@dataclass(frozen=True)
class Asked:
    """What is asked about each prediction, as the command line says it."""

    target: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="The class to explain, by number or name; by default the predicted one.",
        ),
    ] = None
    relation: Annotated[
        str | None,
        typer.Option(help="The relation of links by number or name, for relational models."),
    ] = None
    output: Annotated[
        str, typer.Option(help="What the model returns: raw, probs or log_probs.")
    ] = "raw"
    scale: Annotated[
        str, typer.Option(help="What is explained: probability, logit, log_odds or value.")
    ] = "probability"
    sufficient: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Also find the smallest set of players that alone keeps this share of the score.",
        ),
    ] = None
    flip: Annotated[
        bool, typer.Option(help="Also find the smallest set whose removal changes the class.")
    ] = False
    seed: Annotated[int, typer.Option(help="Seed of the explainer.")] = 0

    def check(self, option: str, links: str | None) -> None:
        """Raise for the relation of no link; `option` names links."""
        if self.relation is not None and links is None:
            raise InputError(f"--relation is that of a link; name links with {option}")
