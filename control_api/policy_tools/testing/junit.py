"""A run of tests in the XML that CI systems read from JUnit: a suite for each file.

Knows no policy. A text that XML can't hold is escaped.
"""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from control_api.policy_tools.sources import Unusable
from policies.definitions.definition import DefinitionFault

# XML 1.0, section 2.2: what a document may not contain, escaped or not.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Report:
    """Collects cases, and writes them to a file."""

    def __init__(self) -> None:
        self._suites: dict[str, ET.Element] = {}

    def passed(self, file: str, name: str) -> None:
        self._case(file, name)

    def failed(self, file: str, name: str, line: str) -> None:
        """`line` says what was expected and decided, and where."""
        case = self._case(file, name)
        failure = ET.SubElement(case, "failure", message=_fit(line), type="decision")
        failure.text = _fit(line)

    def unreadable(self, fault: DefinitionFault) -> None:
        """A fault of a file, whose cases were not run."""
        case = self._case(fault.file, f"line {fault.line}")
        ET.SubElement(case, "error", message=_fit(str(fault)), type="file")

    def write(self, path: Path) -> None:
        """Raises `Unusable` if the file can't be written."""
        root = ET.Element("testsuites", name="sluice policy test")
        for suite in (*self._suites.values(), root):
            if suite is not root:
                root.append(suite)
            for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
                suite.set(count, str(sum(1 for _ in suite.iter(tag))))
        ET.indent(root)
        try:
            ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
        except OSError as error:
            raise Unusable(f"`{path}` can't be written: {error.strerror}") from error

    def _case(self, file: str, name: str) -> ET.Element:
        suite = self._suites.get(file)
        if suite is None:
            suite = ET.Element("testsuite", name=_fit(file))
            self._suites[file] = suite
        return ET.SubElement(suite, "testcase", classname=_fit(file), name=_fit(name))


def _fit(text: str) -> str:
    return _UNFIT.sub(lambda found: ascii(found.group())[1:-1], text)
