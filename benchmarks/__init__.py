"""Speed and error of graphsvx against peers, as ratios within one run.

python -m benchmarks [--quick] [--json FILE] [--only speed|error] [--docs]
python -m benchmarks soundness [--games N] [--only FAMILY:SEED]: random games against brute force
"""
