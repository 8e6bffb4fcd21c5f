"""Messages as the pipeline handles them: reads requests, relays and filters responses. Knows
nothing of decisions."""
