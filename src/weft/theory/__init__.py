"""The theory guide: each formula beside the code that computes it, with a picture and a test, in two languages."""
