"""Lifecycles over the real API, against models that fit on a screen."""
