"""The errors of a connection that ended too early."""


class BodyBrokenOff(ConnectionError):
    """the connection was lost in the middle of a body"""


class BodyOmitted(ConnectionError):
    """a client of `Expect: 100-continue` was refused before its body, and may leave that out"""


class ConnectionLost(ConnectionError):
    """the server closed the connection, or it was broken off"""
