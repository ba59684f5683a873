"""Tensors of rows that are stored once, changed in few columns, or not needed."""
