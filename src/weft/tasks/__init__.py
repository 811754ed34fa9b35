"""Fine-tuning tasks: the protocol, one file per task, and folders for data, learning and judging."""
