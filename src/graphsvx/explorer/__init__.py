"""The explorer: a local web page on which predictions are explained and changed.

graphsvx.serve(model, data)            # prints the address, opens the browser
graphsvx serve digits                  # the same from the command line
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from graphsvx.core.model import Decoder, Output, Pick, Scale
from graphsvx.utils.imports import require_extra

if TYPE_CHECKING:
    from graphsvx.explorer.server import Server

__all__ = ["serve"]


def serve(
    model: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    data: Any,
    *,
    task: Literal["node", "graph", "link"] | None = None,
    title: str = "Explorer",
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    output: Output | Pick | None = None,
    scale: Scale | None = None,
    decoder: Decoder | None = None,
    run: Any = None,
    port: int = 0,
    browser: bool | None = None,
) -> Server:
    """Serve a page on this machine on which predictions are explained and changed.

    Args:
        model: a model as for `explain`, or several by name, which can be compared.
        data: one graph, with or without types (`HeteroData`), or a list of graphs for a model
            that classifies graphs.
        task: "node", "graph" (default for a list of graphs) or "link" (default with a decoder).
        title: shown on the page, for example the name of the data set.
        class_names: names of the outputs.
        feature_names: names of the columns of `x`.
        node_names: names of the nodes, to search for; those of a `HeteroData` are in
            `data["author"].names`.
        output: what the model returns, as for `explain`.
        scale: what is explained, as for `explain`.
        decoder: links: embeddings of two nodes to a score, as for `explain`.
        run: a run (`graphsvx.runs.open(folder)`) that is shown too.
        port: the port to listen on; 0 takes a free one.
        browser: open the browser; None: unless this is a notebook.

    Returns:
        The running server with its address `url`; `close()` stops it. In a notebook it shows the
        page in a frame.

    """
    for package in ("starlette", "uvicorn"):
        require_extra(package, "serve")
    from graphsvx.explorer.server import start  # noqa: PLC0415  (needs the extra "serve")
    from graphsvx.explorer.workspace import make_workspace  # noqa: PLC0415  (the extra "serve")

    workspace = make_workspace(
        model, data, task=task, title=title, class_names=class_names,
        feature_names=feature_names, node_names=node_names, output=output, scale=scale,
        decoder=decoder, run=run,
    )  # fmt: skip
    return start(workspace, port=port, browser=browser, announce=True)
