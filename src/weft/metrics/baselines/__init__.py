"""Classical baselines: a method for each task that trains in seconds and without torch.

vectors    texts as TF-IDF vectors of words and word pairs
classify   logistic regression, for one label or for any number of labels per text
pairs      logistic or ridge regression on the similarity and the shared words of two texts
tag        the most frequent tag of a word, or of a whole entity
answer     the sentence most similar to the question, and the words in it that it asks for
rewrite    the first sentences, the source itself, or the target of the nearest training source
reply      a conditional n-gram model, and TF-IDF ranking of candidates
frozen     logistic regression on the vectors of a model before fine-tuning

All are deterministic and support scripts without spaces.
"""
