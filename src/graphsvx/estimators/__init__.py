"""EXPL: values -> credit."""

from graphsvx.estimators.estimate import Estimate, estimate
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import WLR, WLS, Estimator, Fit

__all__ = ["WLR", "WLS", "Estimate", "Estimator", "Fit", "GaussianProcess", "Lasso", "estimate"]
