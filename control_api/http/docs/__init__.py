"""Renders the page at `/docs`, to read, search and try the API."""
