"""Downloads of data sets, from a server on loopback that may be damaged, slow or not there."""

from __future__ import annotations

import csv
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from scipy.sparse import csr_matrix, save_npz
from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, FB15k_237, Planetoid, TUDataset

from graphsvx.errors import DataError
from graphsvx_lab import datasets
from graphsvx_lab.datasets import molecules, raw, typed
from graphsvx_lab.datasets.catalogue import CATALOGUE, ORIGINS, data_files, origin_of

FILES = {"raw/a.txt": b"1 2\n3\n", "raw/b.bin": b"\x00\x01" * 500}


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in files.items():
            zipped.writestr(name.replace("raw/", "Small/"), content)
    return stream.getvalue()


@dataclass
class Server:
    """What is answered: a part of the content, and the rest of it after `then`, if at all."""

    url: str = ""
    status: int = 200
    content: bytes = archive(FILES)
    part: int | None = None
    then: Callable[[], object] = lambda: None
    rest: bool = False
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of one small archive, which is what the set "mutag" consists of meanwhile."""
    answers = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            self.send_response(answers.status)
            self.send_header("Content-Length", str(len(answers.content)))
            self.end_headers()
            self.wfile.write(answers.content[: answers.part])
            answers.then()
            if answers.rest:
                self.wfile.write(answers.content[answers.part :])

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        answers.url = f"http://127.0.0.1:{http.server_port}/data"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        small = replace(
            ORIGINS["mutag"],
            url=answers.url,
            downloads=("small.zip",),
            files=tuple(FILES),
            sha256=raw.sha256(FILES),
        )
        monkeypatch.setitem(ORIGINS, "mutag", small)
        yield answers
        http.shutdown()
        thread.join()


def read(root: Path) -> dict[str, bytes]:
    def contents(folder: str, _name: str) -> dict[str, bytes]:
        return {f"raw/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}

    return raw.read_files("mutag", root, contents)


def test_a_set_is_downloaded_once_and_whole(server: Server, tmp_path: Path) -> None:
    assert read(tmp_path / "new") == FILES
    server.content = b"something else"
    assert read(tmp_path / "new") == FILES
    assert server.asked == ["/data/small.zip"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["Mutagenicity"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content": archive(FILES | {"raw/b.bin": b"another"})}, "sha256 is"),
        ({"content": archive({"raw/a.txt": b"1 2 3"})}, "b.bin"),
        ({"content": archive(FILES)[:-30]}, "not a zip file"),
        ({"content": b"<html>Please log in</html>"}, "not a zip file"),
        ({"part": 100}, "ended after 100 of"),
        ({"part": 0}, "ended after 0 of"),
        ({"status": 404}, "404"),
        ({"status": 503}, "503"),
    ],
)
def test_what_is_damaged_or_refused_is_not_kept(
    server: Server, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path)
    assert server.url in str(caught.value)
    assert str(tmp_path / "Mutagenicity" / "raw") in str(caught.value)
    assert 'FAQ: "A data set is missing"' in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_stalls_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(raw, "TIMEOUT", 0.2)
    server.part, server.then = 100, lambda: over.wait(60)
    start = time.monotonic()
    with pytest.raises(DataError, match=r"no data for 0\.2 s\); put small.zip from there into"):
        read(tmp_path)
    over.set()
    assert time.monotonic() - start < 30
    assert list(tmp_path.iterdir()) == []


def test_without_a_server_the_message_says_what_to_put_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ORIGINS:
        monkeypatch.setitem(ORIGINS, name, replace(ORIGINS[name], url="http://127.0.0.1:9/data"))
        if name not in molecules.CLASS_NAMES:  # those need RDKit first
            with pytest.raises(DataError) as caught:
                datasets.load(name, root=tmp_path)
            words = (*ORIGINS[name].downloads, ORIGINS[name].url, str(tmp_path), "GRAPHSVX_DATA")
            assert all(word in str(caught.value) for word in words)
            assert all(Path(file).name in str(caught.value) for file in data_files(name))
    assert list(tmp_path.iterdir()) == []


def test_downloads_that_were_put_there_by_hand_are_taken(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "Mutagenicity" / "raw"
    folder.mkdir(parents=True)
    (folder / "small.zip").write_bytes(archive(FILES))
    assert FILES.items() <= read(tmp_path).items()
    assert server.asked == []


def test_a_file_that_is_there_is_not_replaced(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "Mutagenicity" / "raw"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"1 2 3\r\n")  # other line ends, the same words
    assert read(tmp_path) == FILES | {"raw/a.txt": b"1 2 3\r\n"}
    assert len(server.asked) == 1


def test_an_interrupted_download_leaves_the_folder_as_it_was(
    server: Server, tmp_path: Path
) -> None:
    over = threading.Event()

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)

    server.part, server.then = 100, interrupt
    # Where tests run in the background, SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            read(tmp_path / "new")
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()
    assert list(tmp_path.iterdir()) == []


def test_two_processes_may_download_at_the_same_time(server: Server, tmp_path: Path) -> None:
    both_ask = threading.Barrier(2)
    server.part, server.then, server.rest = 100, lambda: both_ask.wait(240), True
    script = (
        "import sys\n"
        "from graphsvx_lab.datasets import raw\n"
        "from graphsvx_lab.datasets.catalogue import ORIGINS, Origin\n"
        f"ORIGINS['mutag'] = {ORIGINS['mutag']!r}\n"
        "raw.TIMEOUT = 240\n"
        "raw.read_files('mutag', sys.argv[1], lambda *_: None)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    errors = [process.communicate(timeout=240)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert len(server.asked) == 2
    assert read(tmp_path) == FILES


def test_a_bar_shows_the_progress_on_terminals_only(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read(tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    read(tmp_path / "shown")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "small.zip" in shown.err
    assert f"{len(server.content)}" in shown.err


def test_a_pickle_of_another_origin_is_never_opened(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "harm"),)

    for file in data_files("cora"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(pickle.dumps(Harm()))
    with pytest.raises(DataError, match=r"cannot be used.*sha256 is .* remove them"):
        datasets.load("cora", root=tmp_path)
    assert not (tmp_path / "harm").exists()


# --- sources --------------------------------------------------------------------------------


def test_sets_with_files_have_a_source_and_a_licence_and_others_none() -> None:
    for name, entry in CATALOGUE.items():
        origin = origin_of(name)
        assert (origin is None) == (entry.folder is None)
        if origin is not None:
            assert origin.url.startswith("https://")
            assert origin.licence
            assert (origin.sha256 is None) == name.startswith("pubmed")


@pytest.mark.parametrize(
    ("name", "pyg"),
    [
        ("pubmed", Planetoid),
        ("amazon-photo", Amazon),
        ("mutag", TUDataset),
        ("fb15k-237", FB15k_237),
    ],
)
def test_addresses_are_those_of_pyg(name: str, pyg: type[Planetoid]) -> None:
    assert ORIGINS[name].url == pyg.url.rstrip("/")


def at_hand(*names: str) -> list[ParameterSet]:
    """Data sets as parameters of a test that needs their files."""
    return [pytest.param(name, marks=pytest.mark.data(CATALOGUE[name].folder)) for name in names]


def folder_at_hand(name: str) -> Path:
    return datasets.data_dir() / str(CATALOGUE[name].folder)


@pytest.mark.parametrize(
    "name", at_hand(*(name for name, origin in ORIGINS.items() if origin.sha256))
)
def test_files_at_hand_have_the_published_contents(name: str) -> None:
    files = ORIGINS[name].files
    contents = {file: (folder_at_hand(name) / file).read_bytes() for file in files}
    assert raw.sha256(contents) == ORIGINS[name].sha256


# --- conversions ----------------------------------------------------------------------------


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(array))
    return stream.getvalue()


def test_acm_is_made_from_the_files_of_heco(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = io.BytesIO()
    save_npz(words, csr_matrix([[1, 0, 1, 0], [0, 1, 0, 0]]))
    downloads = {
        "p_feat.npz": words.getvalue(),
        "labels.npy": npy([2, 0]),
        "pa.txt": b"0\t1\n0\t0\n1\t1\n",
        "ps.txt": b"0\t1\n1\t0\n",
        "train_60.npy": npy([1]),
        "val_60.npy": npy([0]),
        "test_60.npy": npy([0]),
    }
    folder = tmp_path / "ACM" / "raw"
    folder.mkdir(parents=True)
    for name, content in downloads.items():
        (folder / name).write_bytes(content)
    monkeypatch.setitem(ORIGINS, "acm", replace(ORIGINS["acm"], sha256=None))
    graph = datasets.load("acm", root=tmp_path).graph
    assert graph["paper"].x.tolist() == [[0.5, 0, 0.5, 0], [0, 1, 0, 0]]
    assert graph["author"].x.tolist() == [[0.5, 0, 0.5, 0], [0.5, 1, 0.5, 0]]
    assert graph["subject"].num_nodes == 2
    assert graph["paper"].y.tolist() == [2, 0]
    assert graph["paper", "to", "author"].edge_index.tolist() == [[0, 0, 1], [1, 0, 1]]
    assert graph["subject", "to", "paper"].edge_index.tolist() == [[1, 0], [0, 1]]


def test_fb15k_237_is_numbered_as_by_pyg(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    downloads = {}
    for part in ("train", "valid", "test"):
        facts = rng.integers(0, 30, (40, 3))
        text = "".join(f"/m/{head}\t/r/{kind % 5}\t/m/{tail}\n" for head, kind, tail in facts)
        downloads[f"{part}.txt"] = text.encode()
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw" / f"{part}.txt").write_bytes(downloads[f"{part}.txt"])
    processed = []

    class Processed(FB15k_237):
        """Keeps in memory what PyG makes of the files in `raw`."""

        def load(self, *_: object) -> None: ...

        @classmethod
        def save(cls, data_list: list[Data], _path: str) -> None:
            processed.extend(data_list)

    Processed(str(tmp_path))
    made = typed.convert_fb15k_237(downloads)
    names, kinds = (made[f"{name}.txt"].decode().split() for name in ("entities", "relations"))
    with np.load(io.BytesIO(made["triples.npz"])) as file:
        for part, theirs in zip(("train", "valid", "test"), processed, strict=True):
            triples = torch.stack([theirs.edge_index[0], theirs.edge_type, theirs.edge_index[1]])
            assert file[part].T.tolist() == triples.tolist()
            facts = [(names[head], kinds[kind], names[tail]) for head, kind, tail in file[part]]
            assert rows(facts) == downloads[f"{part}.txt"]


def test_molecules_are_made_from_smiles_and_a_split() -> None:
    pytest.importorskip("rdkit")
    split = npz(train_index=np.array([0, 2]), test_index=np.array([1]))

    def table(name: str, *smiles: str) -> list[str]:
        lines = "".join(f"molecule {i},{text}\n" for i, text in enumerate(smiles))
        downloads = {"x_smiles.csv": f"mol_id,smiles\n{lines}".encode(), "x_traintest.npz": split}
        return molecules.convert(name, downloads)[f"{name}.csv"].decode().splitlines()[1:]

    assert table("benzene", "Cc1ccccc1", "CC", "c1ccccc1-c1ccccc1") == [
        "Cc1ccccc1,1,train,0111111",
        "CC,0,test,00",
        "c1ccccc1-c1ccccc1,1,train,111111000000|000000111111|111111111111",
    ]
    assert table("alkane-carbonyl", "FC=O", "CCC=O", "FC(F)=O") == [
        "FC=O,1,train,111",
        "CCC=O,0,test,0000",
        "FC(F)=O,1,train,1101|0111|1111",
    ]
    assert table("crippen", "C") == ["C,0.6361,train,0.1441 0.123 0.123 0.123 0.123"]


@pytest.mark.parametrize("name", at_hand("acm", "fb15k-237", "alkane-carbonyl", "crippen"))
def test_a_conversion_has_the_published_contents(name: str) -> None:
    """Downloads are written from the files at hand, and must give the same contents again."""
    folder = folder_at_hand(name)
    convert = {"acm": typed.convert_acm, "fb15k-237": typed.convert_fb15k_237}
    if name == "acm":
        downloads = downloads_of_acm(folder)
    elif name == "fb15k-237":
        downloads = downloads_of_fb15k_237(folder)
    else:
        pytest.importorskip("rdkit")
        downloads = downloads_of_molecules(folder / f"{name}.csv")
    made = convert.get(name, partial(molecules.convert, name))(downloads)
    assert raw.sha256(made) == ORIGINS[name].sha256


def downloads_of_acm(folder: Path) -> dict[str, bytes]:
    words = io.BytesIO()
    with np.load(folder / "acm.npz") as file:
        indices, indptr = file["paper_x_indices"], file["paper_x_indptr"]
        matrix = csr_matrix((np.ones(len(indices)), indices, indptr), file["paper_x_shape"])
        save_npz(words, matrix.tocoo())
        return {
            "p_feat.npz": words.getvalue(),
            "pa.txt": rows(file["paper_author"].T),
            "ps.txt": rows(file["paper_subject"].T),
            "labels.npy": npy(file["paper_y"].astype(np.int32)),
            **{f"{part}_60.npy": npy(file[part]) for part in ("train", "val", "test")},
        }


def downloads_of_fb15k_237(folder: Path) -> dict[str, bytes]:
    names, kinds = (
        (folder / f"{name}.txt").read_text().split() for name in ("entities", "relations")
    )
    with np.load(folder / "triples.npz") as file:
        return {
            f"{part}.txt": rows((names[h], kinds[r], names[t]) for h, r, t in file[part].tolist())
            for part in file.files
        }


def downloads_of_molecules(path: Path) -> dict[str, bytes]:
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    test = np.array([index for index, row in enumerate(table) if row["split"] == "test"])
    smiles = "\n".join(["smiles", *(row["smiles"] for row in table)])
    return {"x_smiles.csv": smiles.encode(), "x_traintest_indices.npz": npz(test_index=test)}


def rows(table: Iterable[Iterable[object]]) -> bytes:
    return "".join("\t".join(map(str, row)) + "\n" for row in table).encode()
