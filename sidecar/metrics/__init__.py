"""The sidecar's counters and histograms, and its readiness. Knows their names and labels, and
nothing of the parts that count with them.
"""
