"""Pages fetched from the web, politely and within limits."""
