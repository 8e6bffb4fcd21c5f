"""Evaluates alert rules on the counters kept with the log, and delivers the alerts that fire.

README.md follows one alert from the rule to the receiver.
"""
