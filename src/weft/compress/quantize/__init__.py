"""Quantization: matrices as int8 or int4 with scales. In the order to read it.

rounding      a matrix to integers, with the scales that cost least
gptq          4 bits: each column makes up for the rounding errors of those before it
calibration   the data: batches through the network
statistics    what each matrix reads, from the calibration data
smoothing     magnitudes moved from activations into weights, where that changes no output
divergence    how far predictions move
sensitivity   the error of each matrix, and which ones stay in fp32
tuning        training with rounded weights, the fp32 model as teacher
run           all of it: a network in, a quantized network and a report out
"""
