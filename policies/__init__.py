"""The pure core: how a decision is made, recorded and proven.

Uses no clock, environment, network or database. Both services import it, and an offline verifier
could, so everything they must agree on to the byte lives here.
"""

__version__ = "0.1.0"
