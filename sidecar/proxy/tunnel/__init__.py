"""Handles connections that don't start as a plain request to a listener: CONNECT, redirected
connections, and TLS that is terminated or passed through."""
