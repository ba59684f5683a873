"""How perturbed graphs go through the model fast, and how that is checked."""
