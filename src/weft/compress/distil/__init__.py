"""Distillation: from a recipe with a teacher to a smaller model.

run          the command: recipe -> run folder
check        errors in a recipe, before any work
shape        the student's family and which layers of the teacher it starts from
importance   which dimensions, heads and inner units of the teacher matter
cut          the student's first weights, cut from the teacher's
student      a student, ready to learn
cache        the teacher's outputs on disk
augment      more training texts by a masked language model
tasks        distillation of a tuned model
writing      the texts that a teacher writes, as targets
text         distillation on plain text
yardsticks   what the student is compared with
report       the comparison on the report's page
"""
