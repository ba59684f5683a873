"""Modules of a model: all of them, and eval mode while they are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from graphsvx.utils.exclusive import exclusive, taking_back


def modules(module: object) -> list[nn.Module]:
    """A module and all its submodules, each once; much faster than `Module.modules`.

    Empty for anything that is not a module.
    """
    if not isinstance(module, nn.Module):
        return []
    reached, seen = [module], {id(module)}
    for parent in reached:  # it grows on the way
        for child in parent._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                reached.append(child)
    return reached


@contextmanager
def evaluation_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Context manager: eval mode without gradients; restores all modules on exit.

    Only one thread can hold it at a time. Restored: each submodule's train/eval mode and
    `compile()`, gradient mode, torch's random state and number of threads (one in between:
    another number would round differently), and what layers with `cached=True` have cached for
    the user's graph, which must not be used for perturbed graphs.
    """
    with exclusive():
        training = [module for module in modules if module.training]
        caching = [module for module in modules if module.__dict__.get("cached") is True]
        compiled = [
            (module, module._compiled_call_impl)
            for module in modules
            if module._compiled_call_impl is not None
        ]
        remembered = [
            {name: value for name, value in vars(module).items() if name.startswith("_cached")}
            for module in caching
        ]
        state = torch.get_rng_state()

        def restore() -> None:
            for module, memory in zip(caching, remembered, strict=True):
                vars(module).update(memory, cached=True)
            for module in training:
                module.training = True
            for module, call in compiled:
                module._compiled_call_impl = call
            torch.set_rng_state(state)

        with taking_back(restore):
            for module in training:
                module.training = False
            for module, _ in compiled:  # it would be compiled again for each size of a batch
                module._compiled_call_impl = None
            for module, memory in zip(caching, remembered, strict=True):
                vars(module).update(dict.fromkeys(memory), cached=False)
            yield
