"""The glossary: its terms are in docs/theory/glossary.tsv."""

from weft.theory.entry import Chapter

GLOSSARY_CHAPTER = Chapter("glossary", (), {})
