"""SII of pairs by shapiq: `python shapiq_pairs_worker.py GAMES RESULTS`, both JSON.

GAMES: a list of (values of all coalitions, calls, seed). RESULTS: by name, a list of [M, M].
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import shapiq

warnings.simplefilter("ignore")
NAMES = (
    "SHAPIQ", "SVARMIQ", "KernelSHAPIQ", "InconsistentKernelSHAPIQ", "PermutationSamplingSII",
    "ProxySHAP",
)  # fmt: skip


def estimate(name, values, calls, seed):
    players = len(values).bit_length() - 1
    powers = 1 << np.arange(players)

    def game(rows):
        return values[np.atleast_2d(rows).astype(np.int64) @ powers] - values[0]

    make = getattr(shapiq.approximator, name)
    interactions = make(n=players, max_order=2, index="SII", random_state=seed).approximate(
        calls, game
    )
    pairs = np.zeros((players, players))
    for i in range(players):
        for j in range(i + 1, players):
            pairs[i, j] = pairs[j, i] = float(interactions[(i, j)])
    return pairs


games = json.loads(Path(sys.argv[1]).read_text())
results = {}
for name in NAMES:
    results[name] = []
    for game in games:
        try:
            results[name].append(estimate(name, np.array(game[0]), *game[1:]).tolist())
        except Exception as error:  # shapiq's own: the game is left out, and said
            print(name, type(error).__name__, error, file=sys.stderr)
            results[name].append(None)
Path(sys.argv[2]).write_text(json.dumps(results))
