"""Vocabulary: graph, model, query, players, receptive field and perturbed graphs."""
