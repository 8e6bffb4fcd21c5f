"""The sidecar's counters and histograms, and its readiness. Knows their names and labels; knows
nothing of the parts that use them."""
