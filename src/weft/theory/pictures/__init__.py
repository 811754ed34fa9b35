"""The pictures of the chapters, one module each. They run weft's own code, so they show what it computes."""
