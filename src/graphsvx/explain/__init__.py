"""EXPL: values -> credit."""

from graphsvx.explain.regression import WLR, WLS, Fit, Lasso, Regression

__all__ = ["WLR", "WLS", "Fit", "Lasso", "Regression"]
