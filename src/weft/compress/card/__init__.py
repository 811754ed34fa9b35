"""The card: what compression cost, from a model before to one or several after."""
