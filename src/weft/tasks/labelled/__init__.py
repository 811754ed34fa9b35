"""Labelled data: rows become examples; what is held out shares no text with what is learnt from."""
