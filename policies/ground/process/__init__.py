"""Parts that every program needs as a process: logging, sockets, files, settings, and a client of
the control API.

The rest of `policies` has no clock, no network and no thread, and imports nothing from here.
"""
