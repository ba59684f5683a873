"""EXPL: values -> credit."""

from graphsvx.explain.regression import WLR, WLS, Fit, Regression
from graphsvx.explain.selective import Lasso

__all__ = ["WLR", "WLS", "Fit", "Lasso", "Regression"]
