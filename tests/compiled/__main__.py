"""`python -m tests.compiled [COUNT]`: compiles a copy of this checkout, and compares both forms."""

from __future__ import annotations

import sys

from deploy.compile.compiler import ROOT, CannotCompile, make_tree
from tests.compiled.comparison import FormsDiffer, compare


def main() -> int:
    count = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else 1_000_000
    try:
        tree = make_tree(ROOT / ".compiled")
        for done in compare(tree, count):
            if done % 50_000 == 0 or done == count:
                print(f"{done:,} decisions and records: the same bytes", flush=True)
    except (CannotCompile, FormsDiffer) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
