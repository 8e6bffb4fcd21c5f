"""Alerts: rules measured on what is counted while the log grows, and what they fire delivered.

The README beside this follows one alert from the rule to the receiver.
"""
