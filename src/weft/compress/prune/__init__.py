"""Pruning: a smaller network of the parts of a trained one, in the order to read it.

bounds        what is asked for: speedup=2x, size=20MB, layers=4 …
calibration   the data that tells what matters
fisher        scores of heads and neurons
depth         the order in which layers go
cut           the network that is left
select        the best neurons and heads
compensate    least squares: what is left takes over the work of what was cut
timing        latency tables of this machine, and the measured speed-up
choose        the shape that meets the bound with the lowest loss
recover       training with the whole network as the teacher
sparse        single weights set to zero
vocabulary    fewer tokens
run           all of it
"""
