"""The page at `/docs`: the API's description to read, to search and to try."""
