"""Evaluation of the model on many perturbed graphs: shortcuts, and the checks that verify them."""
