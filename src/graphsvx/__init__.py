"""Shapley value explanations for graph neural networks."""
