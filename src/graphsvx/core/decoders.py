"""Decoders: scores of links from the embeddings of their two ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphsvx.core.calling import method_of, signature_of
from graphsvx.core.model import must_be_real
from graphsvx.errors import InputError, ModelError, error_text

Decoder = Callable[[Tensor, Tensor], Tensor]
"""Embeddings of the two ends [pairs, width] each, to scores [pairs] or [pairs, outputs]."""


def inner_product(source: Tensor, target: Tensor) -> Tensor:
    """Inner product z_u . z_v, the logit of a link: the usual decoder of graph autoencoders."""
    return (source * target).sum(-1)


def decode(decoder: Decoder, out: Tensor) -> Tensor:
    """Embeddings of the two ends [batch, 2, width] to scores [batch, outputs]."""
    try:
        scores = decoder(out[:, 0], out[:, 1])
    except (KeyboardInterrupt, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"the decoder failed: {error_text(error)}") from error
    count = out.shape[0]
    must_be_real(scores)
    if isinstance(scores, Tensor) and scores.dim() == 1:
        scores = scores[:, None]
    if not isinstance(scores, Tensor) or scores.dim() != 2 or scores.shape[0] != count:
        got = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ModelError(
            f"the decoder must return one score (or one row of scores) a pair, [{count}] or "
            f"[{count}, outputs], got {got}"
        )
    return scores


def with_relation(decoder: Callable[..., Tensor], relation: int | None) -> Decoder:
    """A decoder of (source, target) from one of (source, target, relation)."""
    if relation is None:
        return decoder

    def score(source: Tensor, target: Tensor) -> Tensor:
        relations = torch.full((len(source),), relation, device=source.device)
        return decoder(source, target, relations)

    return score


def model_decoder(
    model: Any, node_types: tuple[str, str] | None, relation: int | None
) -> Decoder | None:
    """The model's own decoder as one of the embeddings of the two ends; None if it has none.

    `decode` and `decoder` take rows of source and target, or as in PyG's `GAE` all embeddings (of
    HeteroData by node type) and the pairs; then the relation where they take a third argument.
    `decoder` is used only if a relation is asked for.

    Args:
        model: the user's model.
        node_types: of HeteroData, those of the two ends.
        relation: the relation that is scored.

    """
    inner = method_of(model, "decoder")
    function = method_of(model, "decode") if hasattr(model, "encode") else None
    if function is None:
        function = inner if relation is not None else None
    if function is None:
        return None
    parameters = _positional(function)
    if not parameters and isinstance(inner, nn.Module):  # decode(*args) of GAE
        parameters = _positional(inner)
    logits = {"sigmoid": False} if "sigmoid" in parameters else {}
    parameters = [name for name in parameters if name != "sigmoid"]
    if relation is not None and len(parameters) < 3:
        raise InputError(
            f"the model's decoder takes {parameters}, not the relation; give "
            "decoder=, a function of (source, target, relation)"
        )
    if len(parameters) < 2 or "edge" not in parameters[1]:
        return with_relation(function, relation)

    def score(source: Tensor, target: Tensor) -> Tensor:
        count = len(source)
        first = torch.arange(count, device=source.device)
        rows = torch.stack([first, first + count])
        embeddings: Any = torch.cat([source, target])
        if node_types is not None:
            embeddings = {node_types[0]: embeddings}
            if node_types[0] != node_types[1]:
                embeddings = {node_types[0]: source, node_types[1]: target}
                rows = torch.stack([first, first])
        arguments = [embeddings, rows]
        if relation is not None:
            arguments.append(torch.full_like(first, relation))
        scores: Tensor = function(*arguments, **logits)
        return scores

    return score


def _positional(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, parameter in signature_of(function).items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
