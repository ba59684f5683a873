"""Explanations: the record, its certificate, summaries and serialization."""

from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.explanation import Credit, Explanation

__all__ = ["Certificate", "Credit", "Explanation", "GameReport"]
