"""Smaller and faster models: distillation, pruning, quantization, and the card that says what it cost."""
