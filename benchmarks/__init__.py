"""Speed and error of graphsvx against peers, as ratios within one run.

python -m benchmarks [--quick] [--json FILE] [--only speed|error] [--docs]
"""
