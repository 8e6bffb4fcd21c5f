"""The error of everything that observes the host. Knows no host."""


class Unobservable(Exception):
    """a property of the host can't be observed; the message says why"""
