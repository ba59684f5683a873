"""Laws that masks, generators, estimators, players and methods obey, for tests of one's own blocks.

from graphsvx.testing import check_mask
check_mask(MyMask())

Each function raises an AssertionError that names the law that does not hold.
"""

from graphsvx.testing.generators import check_generator, check_players
from graphsvx.testing.laws import check_estimator, check_mask, check_method

__all__ = ["check_estimator", "check_generator", "check_mask", "check_method", "check_players"]
