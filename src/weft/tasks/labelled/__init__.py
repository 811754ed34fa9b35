"""Labelled data: rows become examples, and held-out examples share no text with training examples."""
