"""One process, in one form: `python -m tests.compiled.worker compiled|pure`, in a compiled tree.

For each line `SEED COUNT` on its standard input it prints a digest of `outcomes`; for a line
`SEED COUNT show`, the outcomes themselves, as JSON.
"""

import hashlib
import json
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def import_sources_only() -> None:
    """Have Python not see the extension modules in this tree."""
    sources = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def ours(path: str) -> Any:
        if not Path(path or ".").resolve().is_relative_to(ROOT):
            raise ImportError(path)
        return sources(path)

    sys.path_hooks.insert(0, ours)
    sys.path_importer_cache.clear()


def main(form: str) -> None:
    if form == "pure":
        import_sources_only()
    from policies.ground.core_form import CORE_FORM
    from tests.compiled.outcomes import outcomes

    print(CORE_FORM, flush=True)
    for line in sys.stdin:
        seed, count, *show = line.split()
        found = outcomes(int(seed), int(count))
        if show:
            print(json.dumps([*found]), flush=True)
            continue
        digest = hashlib.sha256()
        for each in found:
            digest.update(each.encode("utf-8", "surrogatepass") + b"\n")
        print(digest.hexdigest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
