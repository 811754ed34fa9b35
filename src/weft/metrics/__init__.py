"""Metrics, confidence intervals and classical baselines. Imports no torch.

classes, entities, answers, rouge, translations, values   metrics per kind of answer
calibration                                               do confidences match accuracies?
bootstrap, difference                                     intervals, and paired comparisons of two models
judged                                                    the result of an evaluation
ngram                                                     the n-gram language model
baselines                                                 the classical method of each task
"""
