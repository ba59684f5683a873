"""Global state of torch that outputs depend on, which workers take over from their caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class TorchState:
    """Default type, precision and autocast of a thread."""

    default_dtype: torch.dtype
    matmul_precision: str
    deterministic: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    """Devices on which autocast is enabled, and its type."""

    @staticmethod
    def current() -> TorchState:
        """The state of this thread."""
        return TorchState(
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            tuple((device, torch.get_autocast_dtype(device)) for device in _DEVICES
                  if torch.is_autocast_enabled(device)),
        )  # fmt: skip

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Work in this state, whatever that of the thread is."""
        before = TorchState.current()
        if before == self:
            yield
            return
        self._set()
        try:
            with ExitStack() as stack:
                for device, dtype in {**dict.fromkeys(_DEVICES), **dict(self.autocast)}.items():
                    stack.enter_context(torch.autocast(device, dtype, dtype is not None))
                yield
        finally:
            before._set()

    def _set(self) -> None:
        torch.set_default_dtype(self.default_dtype)
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.use_deterministic_algorithms(self.deterministic)
