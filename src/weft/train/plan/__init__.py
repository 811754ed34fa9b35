"""What fits into a budget on this machine: sizes, trials, the choice."""
