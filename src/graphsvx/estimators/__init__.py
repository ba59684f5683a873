"""EXPL: values -> credit."""

from graphsvx.estimators.controls import ControlledWLS as ControlledWLS
from graphsvx.estimators.estimate import Estimate, estimate
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.gaussian_process import Known as Known
from graphsvx.estimators.indices import BII, FSII, KSII, SII, STII, Density, Index
from graphsvx.estimators.indices import IndexSetting as IndexSetting
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import WLR, WLS, Estimator, Fit
from graphsvx.estimators.least_squares import EstimatorSetting as EstimatorSetting
from graphsvx.estimators.least_squares import PlayedRows as PlayedRows

__all__ = [
    "BII", "FSII", "KSII", "SII", "STII", "WLR", "WLS", "Density", "Estimate", "Estimator", "Fit",
    "GaussianProcess", "Index", "Lasso", "estimate",
]  # fmt: skip
