"""The experiments of the GraphSVX paper: data sets, models, measures against known truth, studies.

Built on `graphsvx`, which does not import it.

    datasets    data sets with planted or known truth, included and downloaded ones
    zoo         the paper's models and small ones of the included sets, trained and kept
    metrics     measures against ground truth, retrained models and other methods
    studies     every experiment of the paper: `graphsvx study`
"""
