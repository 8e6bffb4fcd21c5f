"""Authentication: turns an API key into a principal, and limits how often a key may call."""
