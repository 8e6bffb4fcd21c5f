"""What both services must agree on to the byte or the word. Knows nothing of policies."""
