"""What the command `graphsvx` starts.

Outside the package, so that Ctrl-C is heard from the first import of `graphsvx` on.
"""

from __future__ import annotations

import os
import signal
from typing import Any


def main() -> None:
    """Import the command line, which Ctrl-C may stop at any moment, and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # ignored in jobs that go on without a terminal
        signal.signal(signal.SIGINT, _stop)
    from graphsvx import cli  # noqa: PLC0415  (with Ctrl-C handled)

    signal.signal(signal.SIGINT, before)
    cli.main()


def _stop(*_: Any) -> None:
    # Not an exception: an import that is interrupted may turn it into an error of its own.
    os.write(2, b"stopped\n")
    os._exit(130)
