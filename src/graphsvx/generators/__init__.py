"""GEN: masks -> perturbed graphs (X', A')."""

from graphsvx.generators.base import Generator, Scene
from graphsvx.generators.cut import CutEdges
from graphsvx.generators.indirect import Indirect
from graphsvx.generators.isolate import Isolate

__all__ = ["CutEdges", "Generator", "Indirect", "Isolate", "Scene"]
