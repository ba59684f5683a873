"""`graphsvx explain` on typed graphs of the user: links of a knowledge graph, HeteroData."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphsvx_lab import datasets, zoo
from graphsvx_lab.datasets.typed import RELATIONS, TYPES
from tests.cli.conftest import Run

SOURCE = """
import torch
from torch_geometric.nn import HeteroConv, SAGEConv

from graphsvx_lab.zoo.models import RelationalEncoder


def knowledge():
    torch.manual_seed(0)
    return RelationalEncoder(12, 4, hidden=6, layers=1)


class Buys(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        types = [("user", "buys", "item"), ("item", "rev_buys", "user")]
        self.conv = HeteroConv({name: SAGEConv((3, 3), 3) for name in types})

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge graph of paths such as relation names, and users who buy items, as files."""
    tmp_path = tmp_path_factory.mktemp("typed")
    rng = torch.Generator().manual_seed(0)
    facts = torch.randint(12, (2, 30), generator=rng)
    kinds = torch.randint(2, (30,), generator=rng)
    graph = Data(
        edge_index=torch.cat([facts, facts.flip(0)], 1),
        edge_type=torch.cat([kinds, kinds + 2]),
        num_nodes=12,
    )
    graph.node_names = [f"/m/{i}" for i in range(12)]
    names = ["/film/film/genre", "/film/film/crew./film/job/role"]
    graph.relation_names = [*names, *(f"{name} (inverse)" for name in names)]
    torch.save(graph, tmp_path / "facts.pt")
    shop = HeteroData()
    shop["user"].x = torch.randn(5, 3, generator=rng)
    shop["item"].x = torch.randn(4, 3, generator=rng)
    bought = torch.tensor([[0, 1, 2, 3, 4, 0], [0, 0, 1, 2, 3, 3]])
    shop["user", "buys", "item"].edge_index = bought
    shop["item", "rev_buys", "user"].edge_index = bought.flip(0)
    torch.save(shop, tmp_path / "shop.pt")
    (tmp_path / "own_typed_models.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(files)
    return files


def test_a_link_of_a_knowledge_graph_by_names_with_table_picture_and_page(run, folder) -> None:
    words = ["explain", "facts.pt", "--model", "own_typed_models.py:knowledge", "--set",
             "players=edges", "--scale", "logit", "--samples", "40"]  # fmt: skip
    files = ["--json", "e.json", "--picture", "e.png", "--html", "e.html"]
    named = run(*words, "--edge", "/m/3,/m/7", "--relation", "/film/film/genre", *files)
    assert named.code == 0, named.err
    assert "link /m/3 –genre→ /m/7" in named.out
    assert "–crew.role→" in named.out
    assert "crew.role" in (folder / "e.html").read_text()
    assert (folder / "e.png").stat().st_size > 10_000
    numbered = run(*words, "--edge", "3,7", "--relation", "0")
    assert numbered.out == named.out
    unknown = run(*words, "--edge", "3,7", "--relation", "hates")
    assert unknown.code == 2
    assert "edge types are" in unknown.err
    alone = run(*words, "--relation", "0")
    assert alone.code == 2


@pytest.mark.parametrize(
    ("question", "title"),
    [(("--edge", "user:3,item:0"), "link user 3 → item 0"), (("--node", "user:3"), "user 3"),
     (("--nodes", "user:1,2"), "2 user nodes")],
)  # fmt: skip
def test_nodes_of_hetero_data_in_a_file(run: Run, folder, question, title) -> None:
    done = run("explain", "shop.pt", "--model", "own_typed_models.py:Buys", *question, "--output",
               "raw", "--html", "e.html", "--json", "-")  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["kind"] in ("edge", "node", "nodes")
    assert title in (folder / "e.html").read_text()


def test_nodes_of_hetero_data_need_a_type(run: Run, folder) -> None:
    done = run("explain", "shop.pt", "--model", "own_typed_models.py:Buys", "--node", "3")
    assert done.code == 2
    assert "user:0" in done.err


def test_fb15k_237_from_a_data_folder(run: Run, tmp_path: Path, monkeypatch) -> None:
    """The command on the data set itself, with few facts and an untrained model."""
    entities, relations = TYPES["fb15k-237"].nodes["node"][0], RELATIONS
    folder = tmp_path / "FB15k-237"
    folder.mkdir()
    draws = np.random.default_rng(0)
    facts = np.stack([draws.integers(30, size=80), draws.integers(5, size=80),
                      draws.integers(30, size=80)], 1)  # fmt: skip
    np.savez(folder / "triples.npz", train=facts[:60], valid=facts[60:70], test=facts[70:])
    (folder / "entities.txt").write_text("\n".join(f"/m/{i}" for i in range(entities)))
    (folder / "relations.txt").write_text("\n".join(f"/a/b/r{i}" for i in range(relations)))
    monkeypatch.setenv("GRAPHSVX_DATA", str(tmp_path))
    monkeypatch.setenv("GRAPHSVX_MODELS", str(tmp_path))
    settings = replace(zoo.settings_for("fb15k-237"), epochs=1, hidden=8, batch_size=16)
    checkpoint = zoo.save(zoo.train(datasets.load("fb15k-237"), settings=settings))
    words = ["fb15k-237", "--checkpoint", str(checkpoint), "--set", "players=edges", "--scale",
             "logit", "--samples", "40", "--relation", "/a/b/r3"]  # fmt: skip
    done = run("explain", *words, "--edge", "/m/2,/m/9")
    assert done.code == 0, done.err
    assert "link /m/2 –r3→ /m/9" in done.out
    many = run("run", *words, "--edges", "/m/2,/m/9; 4,5", "--out", str(tmp_path / "facts"),
               "--workers", "1")  # fmt: skip
    assert many.code == 0, many.err
    assert "2 of 2 explained" in many.out
