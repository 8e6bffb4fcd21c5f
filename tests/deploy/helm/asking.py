"""Asks each address until it answers, and prints the statuses: `python -m … ADDRESS …`, run in a
network namespace. Certificates are not verified. Knows no expectation."""

import ssl
import sys
import urllib.error
import urllib.request
from functools import partial

from tests.support.waiting import until


def status(address: str) -> int:
    """The status, or 0 without an answer or while a service starts."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(address, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return 0 if error.code == 503 else error.code
    except OSError:
        return 0


def main(addresses: list[str]) -> None:
    for address in addresses:
        until(f"{address} answers", partial(status, address))
        print(status(address))


if __name__ == "__main__":
    main(sys.argv[1:])
