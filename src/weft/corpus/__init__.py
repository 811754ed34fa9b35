"""Text on its way in. No torch in here.

read    documents out of text files, JSON lines and folders of them
split   which of their text is held out for validation and test
"""
