"""What fine-tuning learns, one file per task, and the reading of its data."""
