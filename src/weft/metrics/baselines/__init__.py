"""What a fine-tuned model has to beat: the classical method of each task, which learns in seconds and without torch.

vectors    texts as TF-IDF vectors of words and word pairs
classify   logistic regression: one label of several, or several at once
pairs      the same for two texts and what they share; ridge regression where the answer is a number
tag        the tag that a word, or the whole of a name, had most often
answer     the sentence most like the question, and in it the words that the question asks for
rewrite    the first sentences, the source itself, or what was said of the nearest source

All are deterministic, and read English and Chinese alike.
"""
