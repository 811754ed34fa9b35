"""The formulas as written: a few plain lines each, one module per chapter. Tests compare them with weft's own code."""
