"""An explanation stays within the memory that it is allowed, or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from graphsvx import GraphSVX, explain
from graphsvx.errors import BudgetError
from graphsvx.estimators import WLR, Lasso
from graphsvx.estimators.least_squares import ridge
from graphsvx.games import FunctionGame
from graphsvx.masks import All, Random
from graphsvx.masks.base import all_rows
from graphsvx.methods import Greedy, PGMExplainer

MIB = 2**20
SELF = Path("/proc/self")


def hub(neighbours: int) -> tuple[GraphSAGE, Data]:
    leaves = torch.arange(1, neighbours + 1)
    out = torch.stack([leaves, torch.zeros_like(leaves)])
    torch.manual_seed(0)
    x = torch.randn(neighbours + 1, 4)
    return GraphSAGE(4, 8, 1, 3).eval(), Data(x=x, edge_index=torch.cat([out, out.flip(0)], 1))


def resident(entry: str) -> int:
    """Bytes of this process that are resident now (VmRSS) or were at most (VmHWM)."""
    line = next(each for each in (SELF / "status").read_text().splitlines() if entry in each)
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not (SELF / "clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "method", [GraphSVX(samples=400, players="nodes"), PGMExplainer(samples=200)]
)
def test_a_hub_is_explained_within_its_memory(method) -> None:
    model, data = hub(20_000)
    explain(model, data, node=1, method=method)  # imports, and what is kept of the graph
    (SELF / "clear_refs").write_text("5")  # VmHWM starts again
    before = resident("VmRSS")
    explain(model, data, node=0, method=method, memory=128 * MIB)
    assert resident("VmHWM") - before < 128 * MIB


@pytest.mark.parametrize(
    "method",
    [
        GraphSVX(),
        GraphSVX(mask=Random(), samples=500),
        GraphSVX(samples=300, estimator=Lasso()),
        GraphSVX(samples=300, estimator=WLR()),
        PGMExplainer(samples=1000),
        Greedy(),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_played(method) -> None:
    model, data = hub(30_000)
    with pytest.raises(BudgetError, match=r"30,0\d\d players take about .* memory= allows 1 MiB"):
        explain(model, data, node=0, method=method, memory=MIB)


def test_a_model_of_logits_is_left_out_where_memory_does_not_allow_it() -> None:
    model, data = hub(300)
    method = GraphSVX(samples=1000, players="nodes")
    within, beyond = (
        explain(model, data, node=0, method=method, memory=memory) for memory in (MIB, 256 * MIB)
    )
    assert "logits" not in (within.certificate.games[-1].model or "")
    assert "logits" in (beyond.certificate.games[-1].model or "")
    assert within.certificate.calls == beyond.certificate.calls == 1000


def test_a_tolerance_ends_where_memory_ends() -> None:
    model, data = hub(3000)
    method = GraphSVX(samples=100, players="nodes", tolerance=1e-9, max_samples=100_000)
    certificate = explain(model, data, node=0, method=method, memory=MIB).certificate
    assert certificate.tolerance_met is False
    assert 100 <= certificate.calls < 10_000


def test_all_coalitions_need_memory() -> None:
    class Small(FunctionGame):
        memory = MIB

    game = Small(lambda rows: torch.from_numpy(rows.sum(1)), 22)
    with pytest.raises(BudgetError, match="4,194,304 coalitions"):
        All()(game, 10, torch.Generator())


def test_rows_of_all_coalitions_are_their_numbers_bits() -> None:
    assert (all_rows(5) @ (1 << np.arange(5))).tolist() == list(range(32))


def test_ridge_is_the_same_in_blocks_of_players() -> None:
    rng = np.random.default_rng(0)
    centred, target = rng.normal(size=(9, 31)), rng.normal(size=(9, 2))
    at_once = ridge(lambda part: centred[:, part], [slice(0, 31)], target)
    blocks = [slice(first, min(first + 7, 31)) for first in range(0, 31, 7)]
    for whole, part in zip(at_once, ridge(lambda part: centred[:, part], blocks, target),
                           strict=True):  # fmt: skip
        np.testing.assert_allclose(part, whole, rtol=1e-9)
