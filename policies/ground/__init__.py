"""Holds all that both services must agree on to the byte or the word: encodings, errors, keys,
addresses, masking. Knows nothing of policies."""
