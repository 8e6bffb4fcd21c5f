"""The ground floor: what a decision is, how it is made, and how it is proven.

Pure. Knows no clock, no environment, no network, no database. Both services and the offline
verifier stand on it, so what they must agree on to the byte lives here.
"""

__version__ = "0.1.0"
