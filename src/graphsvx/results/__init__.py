"""Explanations: the record, its certificate, summaries and serialization."""

from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit, Interactions, Region, Together
from graphsvx.results.details import PlayerSet
from graphsvx.results.explanation import Explanation
from graphsvx.results.summary import Explanations

__all__ = [
    "Certificate",
    "Credit",
    "Explanation",
    "Explanations",
    "GameReport",
    "Interactions",
    "PlayerSet",
    "Region",
    "Together",
]
