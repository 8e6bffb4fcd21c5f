"""Alerts: measures rules on the counters kept with the log, and delivers what they fire.

README.md follows one alert from the rule to the receiver.
"""
