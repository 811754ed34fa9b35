"""Fill in what a recipe leaves open.

run_plan   the plan of a run: size, batch, rates, steps
scaling    rules for the size of model, batch and sequence
trial      the cost of a step, measured
machine    peak speed of matrix products, and whether bfloat16 is fast
memory     keep freed memory in the process
"""
