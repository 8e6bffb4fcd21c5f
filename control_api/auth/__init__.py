"""Who calls: an API key becomes a principal, with a limit on how often it may call."""
