"""How good is it, and beside what?

ngram   the n-gram language model, the classical baseline of language modelling
"""
