"""GEN: masks -> perturbed graphs (X', A')."""

from graphsvx.generators.base import GameSetup, Generator
from graphsvx.generators.base import GeneratorSetting as GeneratorSetting
from graphsvx.generators.base import trait as trait
from graphsvx.generators.indirect import Indirect
from graphsvx.generators.indirect import Variant as Variant
from graphsvx.generators.isolate import CutEdges, Isolate, RemoveRows
from graphsvx.generators.replace import ReplaceRows

__all__ = [
    "CutEdges",
    "GameSetup",
    "Generator",
    "Indirect",
    "Isolate",
    "RemoveRows",
    "ReplaceRows",
]
