"""Steps that several use cases on API keys share."""
