"""One estimate by shapiq: `python shapiq_worker.py NAME PLAYERS CALLS`, values through the pipe."""

import pickle
import struct
import sys
import warnings

import numpy as np
import shapiq

known: dict[bytes, float] = {}
out, back = sys.stdout.buffer, sys.stdin.buffer


def send(kind, content):
    message = pickle.dumps((kind, content))
    out.write(struct.pack("<q", len(message)) + message)
    out.flush()


def game(rows):
    """Values less that of the empty coalition; each distinct coalition is asked for once."""
    rows = np.atleast_2d(rows).astype(bool)
    packed = np.packbits(rows, axis=1)
    keys = [row.tobytes() for row in packed]
    new = list({key: i for i, key in enumerate(keys) if key not in known}.items())
    if new:
        send("rows", packed[[i for _, i in new]])
        # Pickle: the other end of the pipe is the benchmark that started this process.
        values = pickle.loads(back.read(struct.unpack("<q", back.read(8))[0]))
        known.update({key: float(value) for (key, _), value in zip(new, values, strict=True)})
    return np.array([known[key] for key in keys]) - base


name, players, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
base = 0.0
base = float(game(np.zeros((1, players), dtype=bool))[0])
warnings.simplefilter("ignore")
make = getattr(shapiq.approximator, name)
settings = {"KernelSHAP": {"pairing_trick": True}}.get(name, {})
estimate = make(n=players, random_state=0, **settings).approximate(calls, game)
send("values", [float(estimate[(i,)]) for i in range(players)])
