"""Alerts: measures rules on the counters kept with the log, and delivers the alerts.

README.md follows one alert from the rule to the receiver.
"""
