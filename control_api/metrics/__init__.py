"""Defines the control API's metrics, and merges those of several workers into one scrape."""
