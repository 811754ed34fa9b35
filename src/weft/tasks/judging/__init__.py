"""A tuned model at work: predictions, metrics beside baselines, reports."""
