"""MASK: which coalitions are played, and how much each of them weighs."""

from graphsvx.masks.base import Mask, Masks
from graphsvx.masks.base import MaskSetting as MaskSetting
from graphsvx.masks.base import all_rows as all_rows
from graphsvx.masks.exact import All, Auto, Connected
from graphsvx.masks.paired import Paired
from graphsvx.masks.paper import Random, Smart, SmarterSeparate, SmartSeparate

__all__ = [
    "All",
    "Auto",
    "Connected",
    "Mask",
    "Masks",
    "Paired",
    "Random",
    "Smart",
    "SmartSeparate",
    "SmarterSeparate",
]
