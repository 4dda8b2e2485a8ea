"""Experiments: models compared over seeds, tested for significance, and the tables made of them."""
