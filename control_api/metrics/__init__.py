"""The control API's metrics, and merging those of several workers into one scrape."""
