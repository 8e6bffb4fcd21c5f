"""TLS to a cluster's API server, whose certificates its installer made. Knows no request."""

import ssl


def cluster_context(cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the cluster's authorities, from a file or as PEM. Checks
    signatures, validity and names. Raises `OSError` (`ssl.SSLError` is one) if there is no
    certificate."""
    made = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # From 3.13 on, Python also asks for extensions that the certificates of many clusters lack,
    # such as the Authority Key Identifier (kubernetes-client/python#2394: all of EKS).
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return made
