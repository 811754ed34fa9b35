"""Web pages: from HTML to the text of the article."""
