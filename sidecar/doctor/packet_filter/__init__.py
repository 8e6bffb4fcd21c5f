"""Reads the packet filter's rules with the tools of this host, and traces packets through them."""
