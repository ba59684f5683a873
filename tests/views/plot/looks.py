"""What the tests of pictures share: reading axes, and many explanations to draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.collections import PathCollection

from tests import records


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def by_gid(ax, gid: str) -> PathCollection:
    return next(c for c in ax.collections if c.get_gid() == gid)


def ticks(ax) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def many(count: int = 20):
    rng = np.random.default_rng(0)
    explanation = records.features_only()
    return [
        replace(
            explanation,
            centres=(400 + i,),
            feature_credit=records.credit(
                [3, 9, 4, 1, 0],
                (explanation.feature_values.numpy() + rng.normal(0, 0.02, 5)).tolist(),
            ),
        )
        for i in range(count)
    ]
