"""When the certificate on the API's port expires, read from its file. Knows no metric."""

import math
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates


def seconds_left(certificate: Path, now: int) -> float:
    """Seconds from `now` (microseconds) until the first certificate of the chain expires, negative
    afterwards; NaN if the file can't be read."""
    try:
        chain = load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError):
        # Half written, or replaced at this moment. The handshake that loads it logs what is wrong.
        return math.nan
    return min(each.not_valid_after_utc.timestamp() for each in chain) - now / 1e6
