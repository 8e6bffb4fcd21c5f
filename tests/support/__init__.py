"""Holds what tests in several folders use: one of each."""
