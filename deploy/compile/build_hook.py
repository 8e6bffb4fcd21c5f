"""A build hook for hatchling: adds the compiled extension modules to a wheel, and marks the wheel
with the platform that they are for.

Off unless asked for: `HATCH_BUILD_HOOK_ENABLE_CUSTOM=true python -m hatchling build -t wheel`. So
an sdist installs without a C compiler, as a pure wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# As in the extra `compile`.
REQUIRED = ["mypy>=2.4", "setuptools>=84"]


class CompiledCore(BuildHookInterface[Any]):
    """The build hook: compiles the core before a wheel is built. An editable installation is not
    compiled."""

    def dependencies(self) -> list[str]:
        return REQUIRED

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # hatchling loads this file by its path, so the packages beside it are not found yet.
        sys.path.insert(0, self.root)
        from deploy.compile.compiler import compile_modules

        self._made = TemporaryDirectory()
        made = Path(self._made.name)
        compile_modules(made)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in sorted(made.rglob("*.so")):
            inside = path.relative_to(made).as_posix()
            build_data["force_include"][str(path)] = f"sluice/lib/{inside}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            self._made.cleanup()
