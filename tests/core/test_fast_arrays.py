"""Quick versions of numpy's operations give what numpy's give."""

import numpy as np
import pytest

from graphsvx.core.arrays import by_size, row_sizes, taken


@pytest.mark.parametrize(("rows", "players"), [(0, 3), (5, 0), (40, 7), (300, 400)])
def test_sizes_of_rows_and_their_order(rows: int, players: int) -> None:
    rng = np.random.default_rng(rows)
    members = rng.random((rows, players)) < rng.random((rows, 1))  # of all sizes
    sizes = row_sizes(members)
    assert sizes.dtype == np.int64
    assert (sizes == members.sum(1)).all()
    assert (row_sizes(np.asfortranarray(members)) == sizes).all()
    assert (by_size(sizes, players) == sizes.argsort(kind="stable")).all()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_entries_of_a_table(kind: type) -> None:
    table = np.random.default_rng(0).integers(0, 9, 50).astype(np.int32)
    places = np.random.default_rng(1).integers(0, 50, 70).astype(kind)
    found = taken(table, places)
    assert found.dtype == table.dtype
    assert (found == table[places]).all()
