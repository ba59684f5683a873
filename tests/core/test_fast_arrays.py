"""Quick versions of numpy's operations give what numpy's give."""

import numpy as np
import pytest

from graphsvx.core.arrays import by_size, row_sizes


@pytest.mark.parametrize(("rows", "players"), [(0, 3), (5, 0), (40, 7), (300, 400)])
def test_sizes_of_rows_and_their_order(rows: int, players: int) -> None:
    rng = np.random.default_rng(rows)
    members = rng.random((rows, players)) < rng.random((rows, 1))  # of all sizes
    sizes = row_sizes(members)
    assert sizes.dtype == np.int64
    assert (sizes == members.sum(1)).all()
    assert (row_sizes(np.asfortranarray(members)) == sizes).all()
    assert (by_size(sizes, players) == sizes.argsort(kind="stable")).all()
