"""The loop and its parts.

schedules     step -> learning rate
optimizers    AdamW, and Muon for matrices
checkpoints   everything a run needs to go on, whole or not there
"""
