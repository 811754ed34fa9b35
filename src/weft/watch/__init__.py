"""Watches run folders while others write to them: read only, without locks, at the cost of a stat() for an idle run.

finding        the runs, corpora, tokenizers, models and reports below a folder
plain_files    reads files of folders that may be anybody's
line_tail      complete lines of a file that grows, shrinks or is replaced
glance         what a list of runs shows, from a few blocks of metrics.jsonl
curves         all numbers of metrics.jsonl, by key
log_lines      what only train.log says: the share of the peak speed, the number of steps
buckets        curves thinned so that spikes survive
holder         the process that holds a run's lock
run            one run: its state and its summary
details        recipe, plan beside what happened, lineage, checkpoints
reports        report.html with a policy that lets nothing of others run
control        stop and resume
watcher        all of it for one folder

The package does not import torch, so that a page of runs starts at once and takes little memory beside the training.
"""
