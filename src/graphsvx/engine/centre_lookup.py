"""Many perturbed graphs around explained nodes, by the states of the nodes in them.

The output of an explained node depends on what its neighbours send in the last round, and each of
them has far fewer states than there are perturbed graphs (`engine.state_graph`). All rounds but the
last one are computed once for each state; the last one, and the head of the model, once for each
perturbed graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.perturbation import Perturbations
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.rounding import allclose
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import give_up

FEWEST_GRAPHS = 1 << 11
"""Perturbed graphs from which on states are numbered: of fewer, most states differ."""
_CHECKED = 16  # graphs of each batch that are evaluated without look-ups too


@dataclass(frozen=True, eq=False)
class CentreLookup:
    """Evaluates perturbed graphs of a model of known structure at the centres of a field."""

    states: StateGraphs
    memory: int

    def __call__(
        self, perturbations: Perturbations, in_batches: Callable[[Ids], Tensor]
    ) -> Tensor | None:
        """Outputs at the centres, [graphs, centres, outputs].

        None: there are too many states, or some outputs are not those that `in_batches` gives for
        the graphs at these places.
        """
        if not self.states.may_have_few(len(perturbations)):
            return None
        step = self.states.block(self.memory)
        parts = []
        for first in range(0, len(perturbations), step):
            part = perturbations.take(slice(first, first + step))
            outputs = self._outputs(part, most_states=len(perturbations))
            if outputs is None:
                return None
            parts.append(outputs)
        out = torch.cat(parts)
        checked = np.linspace(0, len(out) - 1, _CHECKED).astype(np.int64)
        agree = allclose(out[as_tensor(checked, out.device)], in_batches(checked), out)
        return out if agree else None

    def _outputs(self, perturbations: Perturbations, most_states: int) -> Tensor | None:
        states = self.states.number_few(perturbations, most_states)
        if states is None:
            return None
        try:
            out = plain(self.states.evaluate(states, self.states.model))
        except ModelError as error:  # of the model or of look-ups: batches show which
            give_up("coalitions were evaluated in batches, not looked up", error)
            return None
        at = out.shape[0] - sum(len(node.example) for node in states.last)
        columns = []
        for node in states.last:
            columns.append(out.index_select(0, at + as_tensor(node.number, out.device)))
            at += len(node.example)
        return torch.stack(columns, 1)
