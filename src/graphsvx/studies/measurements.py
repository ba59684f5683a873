"""The tidy table of measurements, under its former name; it is in `graphsvx.metrics`."""

from graphsvx.metrics.measurements import NO_QUESTION, Measurements, Row, Value, of_model

__all__ = ["NO_QUESTION", "Measurements", "Row", "Value", "of_model"]
