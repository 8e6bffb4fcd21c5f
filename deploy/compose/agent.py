"""A sample agent: fetches documents through its sidecar. Run it as
`docker compose --profile agent run --rm agent handbook/returns.txt payroll/grades.txt`.
"""

import sys
import urllib.error
import urllib.request

SOURCE = "http://sidecar:18000/"


def main(paths: list[str]) -> int:
    """Fetch each document and print it, or print why it is denied. Returns 0 if every document was
    allowed, else 1."""
    denied = 0
    for path in paths:
        try:
            with urllib.request.urlopen(SOURCE + path, timeout=10) as answer:  # noqa: S310
                print(f"{path}: {answer.read().decode()}", end="")
        except urllib.error.HTTPError as error:
            denied += 1
            print(f"{path}: {error.code} {error.read().decode()}")
    return int(denied > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
