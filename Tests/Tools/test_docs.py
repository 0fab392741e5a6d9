#!/usr/bin/python3
"""What the documents name as proof is there: suites by their names, tests by a part of theirs.

    python3 Tests/Tools/test_docs.py
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE = re.compile(r"\b[A-Z]\w+Tests\b")


def suites():
    """The tests' names by suite; a function that is named as usual counts by its words."""
    found = {}
    for path in (ROOT / "Tests").rglob("*.swift"):
        text = path.read_text()
        tests = re.findall(r"func\s+`([^`]+)`", text)
        tests += [re.sub("[A-Z]", lambda letter: " " + letter[0].lower(), name) for name in re.findall(r"func (\w+)\(", text)]
        for suite in re.findall(r"(?:struct|class|extension) (\w+Tests)\b", text):
            found.setdefault(suite, []).extend(tests)
    return found


def proofs(text):
    """What the tables with a last column "shown by" say there, row by row: suites, each with the parts of tests' names behind it."""
    suite, is_proof = None, False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells or cells[-1] == "shown by":
            is_proof = bool(cells)
        elif is_proof and set(line) - set("|- "):
            for part in cells[-1].split(";"):
                named = re.fullmatch(r"(\w+Tests)(?:: (.*))?", part.strip())
                suite, words = (named[1], named[2]) if named else (suite, part.strip().lstrip("… "))
                if suite:
                    yield suite, words


class DocumentTests(unittest.TestCase):
    def test_every_suite_that_is_named_exists(self):
        known = set(suites()) | {path.name for path in (ROOT / "Tests").iterdir()}
        named = {name for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] for name in SUITE.findall(path.read_text())}
        self.assertGreater(len(named), 50)
        self.assertEqual(sorted(named - known), [])

    def test_every_test_of_the_floors_tables_exists(self):
        tests = suites()
        shown = list(proofs((ROOT / "docs" / "floor-control.md").read_text()))
        self.assertGreater(len(shown), 50)
        missing = [(suite, words) for suite, words in shown if words and not any(words.lower() in name.lower() for name in tests[suite])]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
