"""From a recipe to a trained model.

pretrain      the command: recipe -> run folder
run_folder    whose folder it is, what was planned, what came out
data          corpus -> tokenizer, token shards
build         the network a recipe asks for
materials     a plan -> network, batches, the loop's settings
planner       what a recipe leaves open is chosen; the time you have is the dial
scaling       how large a model, how large a batch: the rules
budget        20m, 2000 steps, 50M tokens, 3 epochs
trial         what a step costs here
machine       the matmul peak, whether bfloat16 is fast
memory        freed memory stays in the process

loop          the one training loop
schedules     step -> learning rate
optimizers    AdamW, and Muon for matrices
checkpoints   everything a run needs to go on, whole or not there
validation    held-out batches, and what a loss on them means
samples       what the model does by now
record        metrics.jsonl, train.log, TensorBoard, the line for people
report        report.html
"""
