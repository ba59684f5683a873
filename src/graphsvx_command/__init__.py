"""What the command `graphsvx` starts.

Outside the package, so that Ctrl-C is heard from the first import of `graphsvx` on.
"""

from __future__ import annotations

import os
import signal
from typing import Any


def main() -> None:
    """Run the command line; until its packages are imported, Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Otherwise it is ignored: a job that goes on without a terminal.
        signal.signal(signal.SIGINT, stop)
    from graphsvx import cli  # noqa: PLC0415  (with Ctrl-C handled)

    cli.main()


def stop(*_: Any) -> None:
    """Handle a signal by ending the process: an exception could get lost inside an import."""
    os.write(2, b"stopped\n")
    os._exit(130)
