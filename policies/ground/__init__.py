"""Everything on which both services must agree to the byte or the word: encodings, errors, keys,
addresses, masking of personal data. Knows nothing of policies."""
