"""A copy of a model for single predictions, which need not wait for running explanations.

An explanation changes modes and layers of its model and holds a lock meanwhile. A prediction must
answer within milliseconds, so it goes through a copy of the model that no other thread uses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import nn

from graphsvx.core.modules import evaluation_mode, modules


class ModelCopy:
    """A model in eval mode for predictions of one thread at a time."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._lock = Lock()
        self._private = False
        self.module = model
        """The copy; the model itself if it cannot be copied."""
        if isinstance(model, nn.Module):
            try:
                self.module, self._private = copy.deepcopy(model), True
            except Exception:  # a model may hold anything
                return
            for layer in modules(self.module):
                layer.training = False
                if layer.__dict__.get("cached") is True:  # of the graph that it saw first
                    cached = [name for name in vars(layer) if name.startswith("_cached")]
                    vars(layer).update(dict.fromkeys(cached), cached=False)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Eval mode, no gradients, one thread."""
        if not self._private:
            with evaluation_mode(modules(self.module)):
                yield
            return
        with self._lock, torch.no_grad():
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # of this thread; another number would round differently
            try:
                yield
            finally:
                torch.set_num_threads(threads)
