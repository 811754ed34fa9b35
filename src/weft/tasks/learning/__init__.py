"""Fine-tuning: from a recipe to a tuned model."""
