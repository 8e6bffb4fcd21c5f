"""Holds all that several programs need of a process: its log, its sockets, its files, and a client
of the control API.

The rest of `policies` has no clock, no network and no thread, and imports nothing from here."""
