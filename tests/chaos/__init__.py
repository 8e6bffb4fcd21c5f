"""Faults, made while the whole system works, and what must hold under each of them."""
