"""The declarations that request bodies are checked against. Field names are the API."""
