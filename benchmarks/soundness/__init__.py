"""Random games of models, graphs and questions, each compared with brute force.

python -m benchmarks soundness [--games N] [--seed S] [--family NAME ...] [--only FAMILY:SEED]
"""
