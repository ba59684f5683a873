"""EXPL: values -> credit."""

from graphsvx.explain.regression import WLR, WLS, Fit, Regression
from graphsvx.explain.selective import Lasso
from graphsvx.explain.smooth import Smooth

__all__ = ["WLR", "WLS", "Fit", "Lasso", "Regression", "Smooth"]
