"""Models and graphs that the command line names: the zoo's, and the user's own."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from graphsvx.cli.options import Asked, ModelChoice, number_or_name
from graphsvx.core.data import check_graph_of
from graphsvx.errors import DataError, InputError, first_line
from graphsvx.utils.constraints import checked
from graphsvx_lab import datasets, zoo
from graphsvx_lab.zoo.training import training_bar

_SAVED = [
    Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, HeteroData, BaseStorage, NodeStorage,
    EdgeStorage,
]  # fmt: skip
"""Classes that a file may name."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model with the graph or graphs that it is asked about."""

    name: str
    """Of the data set or file."""
    model: nn.Module
    graphs: tuple[Any, ...]
    many: bool
    """Whether each graph is explained as a whole."""
    dataset: datasets.DataSet | None = None
    """None: the graphs are from a file."""

    @property
    def data(self) -> Any:
        """One graph, or a list of graphs."""
        return list(self.graphs) if self.many else self.graphs[0]

    @property
    def labels(self) -> Tensor | None:
        """Classes (or numbers) of the nodes or graphs, where they are known."""
        if self.dataset is not None:
            return self.dataset.labels
        labels = self.graphs[0].stores[0].get("y")
        return None if self.many or not torch.is_tensor(labels) else labels

    def options(self, request: Asked, of_links: bool) -> dict[str, Any]:
        """Arguments of `explain`: how it is asked, and names, where they are known.

        What is explained of a regression, whose labels are numbers, is the value. Links have no
        classes of nodes.
        """
        labels = self.graphs[0].stores[0].get("y")
        output, scale = request.output, request.scale
        numbers = torch.is_tensor(labels) and labels.is_floating_point()
        if numbers and (output, scale) == ("raw", "probability"):
            output, scale = "regression", "value"
        target = number_or_name(request.target)
        options: dict[str, Any] = {"target": target, "output": output, "scale": scale}
        if request.relation is not None:
            options["relation"] = number_or_name(request.relation)
        if self.dataset is not None:
            options["class_names"] = None if of_links else self.dataset.class_names
            options["feature_names"] = self.dataset.feature_names
        return {**options, "seed": request.seed}


def load(name: str, choice: ModelChoice, *, as_graphs: bool = False) -> Loaded:
    """The model and the graphs of a data set or of a file.

    as_graphs: a file with a single graph is explained as a whole, where the model is one's own.
    """
    choice.check(name)
    dataset = None
    if choice.is_own:
        model = own_model(str(choice.model), choice.weights)
    elif name in datasets.names():
        trained = _trained(name, choice)
        model, dataset, as_graphs = trained.model, trained.dataset, False
    else:
        model, card = zoo.read(Path(str(choice.checkpoint)))
        as_graphs = card.task == "graph"
    if dataset is None and name in datasets.names():
        dataset = datasets.load(name, choice.model_seed)
    if dataset is not None:
        many = as_graphs or dataset.task == "graph"
        return Loaded(name, model, dataset.graphs, many, dataset)
    graphs, many = _saved_graphs(Path(name))
    for graph in graphs:
        check_graph_of(model, graph)
    return Loaded(name, model, graphs, as_graphs or many)


def _trained(name: str, choice: ModelChoice) -> zoo.Trained:
    if choice.checkpoint is not None:
        trained = zoo.load(choice.checkpoint)
        if trained.dataset.name != name:
            raise DataError(
                f"{choice.checkpoint} was trained on {trained.dataset.name!r}, not on {name!r}"
            )
        return trained
    if zoo.checkpoint_path(name, choice.model, choice.model_seed).exists():
        return zoo.load(name, choice.model, choice.model_seed)
    with training_bar(f"training {name}, once") as progress:
        return zoo.ensure(name, choice.model, choice.model_seed, progress)


def _saved_graphs(path: Path) -> tuple[tuple[Any, ...], bool]:
    """Graphs in a file, and whether it holds a list. No code in the file is run."""
    try:
        with torch.serialization.safe_globals(_SAVED):
            loaded = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for damaged files
        raise DataError(
            f"{path} cannot be read as a PyG Data saved by torch.save(data, path): "
            f"{first_line(error)}"
        ) from error
    many = isinstance(loaded, (list, tuple)) and len(loaded) > 0
    graphs = tuple(loaded) if many else (loaded,)
    for graph in graphs:
        if not isinstance(graph, (Data, HeteroData)):
            raise DataError(
                f"{path} must hold a PyG Data or HeteroData, or a list of them, "
                f"got {type(graph).__name__}"
            )
    return graphs, many


def own_model(place: str, weights: Path | None = None) -> nn.Module:
    """The model that `module:attribute` names, with weights from a file.

    The attribute is a function or class that is called without arguments, or the model itself;
    the module is imported from the current folder, or from the folder of `path/file.py`.
    """
    file, _, attribute = place.rpartition(":")
    if not file or not attribute.isidentifier():
        raise InputError(
            f"your own model is named as my_module:build or my/file.py:build, got {place!r}"
        )
    module = _module(file)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise InputError(f"{file} has no {attribute!r}; it has {', '.join(public) or 'nothing'}")
    model = _built(getattr(module, attribute), place)
    if weights is not None:
        _load_weights(model, weights)
    return model.eval()


def _module(file: str) -> ModuleType:
    """Import a module by name from the current folder, or by the path of its file."""
    path = Path(file)
    by_path = path.suffix == ".py"
    if by_path and not path.is_file():
        raise InputError(f"{file}: there is no such file")
    folder, name = (path.parent, path.stem) if by_path else (Path(), file)
    # Imported by name, so that worker processes can import it too.
    sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0] or error.name == name:
            raise InputError(
                f"there is no module {name!r} in {folder.resolve()}; name the file: "
                f"--model path/to/{name}.py:build"
            ) from error
        raise InputError(f"{file} cannot be imported: {first_line(error)}") from error
    except Exception as error:  # the user's code
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{file} cannot be imported: {reason}") from error
    if by_path and Path(str(module.__file__)).resolve() != path.resolve():
        raise InputError(f"there is another module called {name!r}; rename {file}")
    return module


def _built(factory: Any, place: str) -> nn.Module:
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise InputError(f"{place} must be a function, a class or a model, got {factory!r}")
    required = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if required:
        raise InputError(
            f"{place} is called without arguments, but takes {', '.join(required)}; "
            f"name a function such as: def build(): return {place.rpartition(':')[2]}(...)"
        )
    try:
        model = factory()
    except Exception as error:  # the user's code
        raise InputError(
            f"{place}() failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(f"{place}() must return a torch.nn.Module, got {type(model).__name__}")
    return model


def _load_weights(model: nn.Module, path: Path) -> None:
    weights = _read_weights(path)
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # shapes that differ
        reason = " ".join(str(error).split()[:40])
        raise DataError(f"{path} does not fit {type(model).__name__}: {reason}") from error
    differ = {"missing": missing, "not in the model": unexpected}
    parts = [f"{label}: {', '.join(names[:5])}" for label, names in differ.items() if names]
    if parts:
        raise DataError(f"{path} has other weights than {type(model).__name__}; {'; '.join(parts)}")


def _read_weights(path: Path) -> dict[str, Tensor]:
    """A state_dict from safetensors, or from torch.save with `weights_only`: no code is run."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from error
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path} does not hold weights only, but for instance a pickled model, which is not "
            f"read because it could run code; write weights with torch.save(model.state_dict(), "
            f"path) or safetensors.torch.save_file"
        ) from error
    except Exception as error:  # torch raises half a dozen kinds
        raise DataError(
            f"{path} cannot be read as weights: {first_line(error)}; write them with "
            f"torch.save(model.state_dict(), path) or safetensors.torch.save_file"
        ) from error
    match loaded:
        # Checkpoints of training loops.
        case {"state_dict": dict(weights)} | {"model_state_dict": dict(weights)}:
            loaded = weights
    try:
        return dict(checked(loaded, dict[str, Tensor], "weights"))
    except InputError:
        raise DataError(f"{path} must hold a state_dict, got {type(loaded).__name__}") from None
