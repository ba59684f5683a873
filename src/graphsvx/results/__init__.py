"""Explanations: the record, its certificate, summaries and serialization."""

from graphsvx.results.answers import PlayerSet
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.results.interactions import Interactions, Together
from graphsvx.results.many import Explanations
from graphsvx.results.regions import Region

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
