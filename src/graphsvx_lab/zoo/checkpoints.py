"""Checkpoints: weights as safetensors (never pickle) and a JSON model card next to them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import safetensors
import safetensors.torch
from torch import nn

from graphsvx.errors import DataError, first_line
from graphsvx.utils.files import as_path, atomic_write
from graphsvx_lab import datasets
from graphsvx_lab.datasets import DataSet, models_dir
from graphsvx_lab.datasets.catalogue import checked_name, checked_seed
from graphsvx_lab.zoo.settings import Card, Settings, checked_model, settings_for
from graphsvx_lab.zoo.training import Progress, Trained, build, train

ENDING = ".safetensors"


def checkpoint_path(
    dataset: str, model: str | None = None, seed: int = 0, root: str | Path | None = None
) -> Path:
    """The path of a checkpoint.

    Args:
        dataset: name of the data set.
        model: name of the model; by default that of the data set.
        seed: of the training.
        root: folder of checkpoints, by default `models_dir()`.

    Returns:
        The path of its weights, whether they exist or not.

    """
    model_name = checked_model(checked_name(dataset), model)
    return models_dir(root) / f"{dataset}-{model_name}-seed{checked_seed(seed)}{ENDING}"


def save(trained: Trained, path: str | Path | None = None, root: str | Path | None = None) -> Path:
    """Write weights and card atomically.

    Args:
        trained: model, card and data set.
        path: of the weights; by default named after data set, model and seed.
        root: folder of checkpoints, where `path` is not given.

    Returns:
        The path of the weights.

    Raises:
        DataError: the file cannot be written, or has another ending.

    """
    usual = models_dir(root) / f"{trained.card.name}{ENDING}"
    target = usual if path is None else as_path(path)
    if target.suffix != ENDING:
        raise DataError(f"a checkpoint must end in {ENDING}, got {target}")
    state = {name: tensor.contiguous() for name, tensor in trained.model.state_dict().items()}
    try:
        with atomic_write(target) as weights, atomic_write(target.with_suffix(".json")) as card:
            safetensors.torch.save_file(state, weights)
            digest = hashlib.sha256(weights.read_bytes()).hexdigest()
            card.write_text(trained.card.with_weights(digest).to_json(), encoding="utf-8")
    except DataError as error:
        raise DataError(
            f"{error}, or point GRAPHSVX_MODELS to a folder that can be written"
        ) from error
    return target


def load(
    name_or_path: str | Path,
    model: str | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    *,
    dataset: DataSet | None = None,
) -> Trained:
    """A trained model in eval mode, its card and its data set.

    Args:
        name_or_path: a data set, or the path of a `.safetensors` file.
        model: with a data set, name of the model.
        seed: with a data set, seed of the training.
        root: with a data set, folder of checkpoints.
        dataset: by default that named in the card. Its fingerprint must be that of the training
            data.

    Returns:
        Model, card and data set.

    Raises:
        DataError: files are missing or damaged, or belong to other data.

    """
    name, expected = str(name_or_path), None
    if name in datasets.names():
        path = checkpoint_path(name, model, seed, root)
        expected = name, checked_model(name, model), seed
    else:
        path = as_path(name_or_path, "name_or_path")
        if path.suffix != ENDING:
            checked_name(name)
    net, card = read(path, expected=expected)
    dataset = dataset or datasets.load(card.dataset, card.data_seed)
    if (dataset.name, dataset.fingerprint) != (card.dataset, card.fingerprint):
        raise DataError(
            f"{path} was trained on other data: its card says {card.dataset!r} with fingerprint "
            f"{card.fingerprint[:12]}, the data set is {dataset.name!r} with "
            f"{dataset.fingerprint[:12]}; {_again(card.dataset, card.settings.model, card.seed)}"
        )
    return Trained(net, card, dataset)


def read(
    path: str | Path, *, expected: tuple[str, str, int] | None = None
) -> tuple[nn.Module, Card]:
    """A trained model in eval mode and its card, without its data set.

    Args:
        path: of a `.safetensors` file.
        expected: data set, model and seed that the card must name.

    Returns:
        Model and card.

    Raises:
        DataError: files are missing, damaged or do not fit, or the card names something else.

    """
    weights = as_path(path)
    card_path = weights.with_suffix(".json")
    for file in (weights, card_path):
        if not file.is_file():
            raise DataError(
                f"there is no file {file}; train the model with: graphsvx train DATASET"
            )
    try:
        card = Card.from_json(card_path.read_text(encoding="utf-8"))
    except (DataError, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the card {card_path} is damaged: {error}; train the model again"
        ) from error
    identity = card.dataset, card.settings.model, card.seed
    if expected is not None and expected != identity:
        raise DataError(
            f"{card_path} is the card of another checkpoint: expected data set, model and "
            f"seed {expected}, found {identity}; {_again(*expected)}"
        )
    again = _again(*identity)
    try:
        content = weights.read_bytes()
    except OSError as error:
        raise DataError(f"{weights} cannot be read: {error.strerror or error}; {again}") from error
    if hashlib.sha256(content).hexdigest() != card.weights:
        raise DataError(f"{weights} is damaged or is not the file of its card; {again}")
    try:
        net = build(
            card.settings,
            features=card.features,
            classes=card.classes,
            task=card.task,
            dataset=card.dataset,
        )
        net.load_state_dict(safetensors.torch.load(content))
    # KeyError: unknown model; RuntimeError: tensors of other names or shapes.
    except (safetensors.SafetensorError, KeyError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{weights} does not fit its card ({first_line(error)}); {again}"
        ) from error
    return net.eval(), card


def ensure(
    dataset: str | DataSet,
    model: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    root: str | Path | None = None,
    *,
    settings: Settings | None = None,
) -> Trained:
    """Load the checkpoint of a data set, model and seed; train and save it if there is none.

    Args:
        dataset: a data set or its name.
        model: name of the model; by default that of the data set.
        seed: of the training, and of a data set that is given by its name.
        progress: called with each `Step` of the training.
        root: folder of checkpoints, by default `models_dir()`.
        settings: of the training, by default `settings_for(dataset, model)`. A checkpoint with
            other settings is trained again.

    Returns:
        The model in eval mode, its card and its data set.

    """
    name, given = (dataset, None) if isinstance(dataset, str) else (dataset.name, dataset)
    settings = settings or settings_for(name, model)
    path = checkpoint_path(name, model, seed, root)
    if path.exists() or path.with_suffix(".json").exists():
        stored = load(name, model, seed, root, dataset=given)
        if stored.card.settings == settings:
            return stored
    data = given or datasets.load(name, seed)
    save(train(data, model, seed, progress, settings=settings), root=root)
    return load(name, model, seed, root, dataset=data)


def _again(dataset: str, model: str, seed: int) -> str:
    return f"train it again with: graphsvx train {dataset} --model {model} --seed {seed}"
