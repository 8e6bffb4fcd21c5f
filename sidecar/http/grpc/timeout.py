"""Reads for how long a client waits for its call (gRPC over HTTP/2, `grpc-timeout`). Pure."""

_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MOST_DIGITS = 8


def timeout_seconds(value: bytes) -> float | None:
    """Return the seconds that a value of `grpc-timeout` states; None if it can't be read."""
    number, unit = value[:-1], _SECONDS.get(value[-1:])
    if unit is None or not number.isdigit() or len(number) > _MOST_DIGITS:
        return None
    return int(number) * unit
