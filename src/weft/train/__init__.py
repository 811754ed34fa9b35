"""From a recipe to a trained model.

pretrain          the command: recipe -> run folder
pretrain_goal     what a recipe asks for, checked first
pretrain_inputs   tokenizer and tokens; with a plan: network, objectives, settings
run_folder        the folder of a run: owner, plan, results
data              corpus -> tokenizer and token shards
build             the network a recipe asks for
budget            20m, 2000 steps, 50M tokens, 3 epochs
plan/             fills in what a recipe leaves open: rules, and measurements of this machine

loop              the one training loop
batches           the batches of a step, in pieces
prefetch          batches made ahead in a thread
step              the loss of a batch as one module
engine            backward, clipping, optimizers, checkpoints
gradients         the gradients of a step's pieces, added along a fixed tree
processes         what several processes agree on
process_group     the processes that torchrun has started
state             what a run remembers from step to step
spec              the settings of the loop
schedules         step -> learning rate
optimizers        AdamW, and Muon for matrices
checkpoints       complete or not there
signals           Ctrl-C and SIGTERM
validation        the loss on held-out text, also in other units
samples           a text that shows what the model can do
ngram_baseline    an n-gram model on the same text
training_log      metrics.jsonl, train.log, TensorBoard, progress
report            report.html
"""
