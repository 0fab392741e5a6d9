#!/usr/bin/python3
"""What Tests/API/check takes for a change that breaks apps, and that the baseline fits the sources.

    python3 Tests/Tools/test_api.py
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
source = (ROOT / "Tests/API/check").read_text().removesuffix('if __name__ == "__main__":\n    main()\n')
api = {"__file__": str(ROOT / "Tests/API/check"), "__name__": "check"}
exec(compile(source, "check", "exec"), api)
declarations, compare = api["declarations"], api["compare"]


def symbol(path, declaration, kind="swift.method", access="public"):
    return {"kind": {"identifier": kind}, "identifier": {"precise": f"s:{path}|{declaration}"}, "pathComponents": path.split("."),
            "declarationFragments": [{"kind": "text", "spelling": part} for part in re.split("( )", declaration)], "accessLevel": access}


def relationship(kind, source, target, fallback=None):
    return {"kind": kind, "source": source["identifier"]["precise"], "target": target if isinstance(target, str)
            else target["identifier"]["precise"], **({"targetFallback": fallback} if fallback else {})}


def delegate(*, has_default=False, more=()):
    """A module with a protocol of one requirement, an enumeration and a structure."""
    protocol = symbol("Listener", "protocol Listener", "swift.protocol")
    requirement = symbol("Listener.heard(_:)", "func heard(_ name: String)")
    state = symbol("State", "enum State", "swift.enum")
    symbols = [protocol, requirement, state, symbol("State.ready", "case ready", "swift.enum.case"),
               symbol("Name", "struct Name", "swift.struct"), symbol("Name.text", "var text: String { get }", "swift.property"), *more]
    relationships = [relationship("requirementOf", requirement, protocol),
                     relationship("conformsTo", state, "s:SH", "Swift.Hashable"), relationship("conformsTo", state, "s:s8CopyableP", "Swift.Copyable")]
    for added in more:
        if added["pathComponents"][0] == "Listener":
            relationships.append(relationship("requirementOf", added, protocol))
            if has_default:
                default = {**added, "identifier": {"precise": added["identifier"]["precise"] + "default"}}
                symbols.append(default)
                relationships.append(relationship("defaultImplementationOf", default, added))
    return {"symbols": symbols, "relationships": relationships}


class ComparisonTests(unittest.TestCase):
    before = declarations(delegate())

    def test_lines_name_what_is_declared_and_what_is_conformed_to(self):
        self.assertEqual(self.before, sorted([
            "Listener |  | protocol Listener", "Listener.heard(_:) | requirement | func heard(_ name: String)", "Name |  | struct Name",
            "Name.text |  | var text: String { get }", "State |  | enum State", "State | conformance | : Hashable",
            "State.ready | case | case ready"]))

    def test_the_same_breaks_nothing(self):
        self.assertEqual(compare(self.before, self.before), ([], []))

    def test_a_declaration_that_is_gone_breaks(self):
        after = [line for line in self.before if not line.startswith("Name.text")]
        breaking, news = compare(self.before, after)
        self.assertEqual((breaking, news), (["gone: Name.text\n    was: var text: String { get }"], []))

    def test_a_declaration_that_reads_differently_breaks(self):
        after = [line.replace("text: String {", "text: String? {") for line in self.before]
        breaking, news = compare(self.before, after)
        self.assertEqual((breaking, news), (
            ["changed: Name.text\n    was: var text: String { get }\n    is:  var text: String? { get }"], []))

    def test_a_conformance_that_is_gone_breaks(self):
        breaking, _ = compare(self.before, [line for line in self.before if "Hashable" not in line])
        self.assertEqual(breaking, ["gone: State (conformance)\n    was: : Hashable"])

    def test_a_type_that_may_no_longer_be_inherited_from_breaks(self):
        old, new = (declarations({"symbols": [symbol("Base", "class Base", "swift.class", access)], "relationships": []})
                    for access in ("open", "public"))
        self.assertEqual(len(compare(old, new)[0]), 1)

    def test_a_new_member_is_news(self):
        after = declarations(delegate(more=[symbol("Name.isEmpty", "var isEmpty: Bool { get }", "swift.property")]))
        self.assertEqual(compare(self.before, after), ([], ["new: Name.isEmpty  var isEmpty: Bool { get }"]))

    def test_a_new_case_breaks_but_not_that_of_a_new_enumeration(self):
        after = declarations(delegate(more=[symbol("State.busy", "case busy", "swift.enum.case")]))
        self.assertEqual(compare(self.before, after), (["new case: State.busy, which a switch over State does not know"], []))
        after = declarations(delegate(more=[symbol("Mood", "enum Mood", "swift.enum"), symbol("Mood.calm", "case calm", "swift.enum.case")]))
        breaking, news = compare(self.before, after)
        self.assertEqual((breaking, len(news)), ([], 2))

    def test_a_new_requirement_breaks_unless_it_has_a_default(self):
        more = [symbol("Listener.gone()", "func gone()")]
        breaking, _ = compare(self.before, declarations(delegate(more=more)))
        self.assertEqual(len(breaking), 1)
        self.assertIn("new requirement: Listener.gone()", breaking[0])
        self.assertEqual(compare(self.before, declarations(delegate(more=more, has_default=True)))[0], [])

    def test_a_default_that_is_gone_breaks(self):
        more = [symbol("Listener.gone()", "func gone()")]
        breaking, _ = compare(*(declarations(delegate(more=more, has_default=has)) for has in (True, False)))
        self.assertEqual(breaking, ["gone: Listener.gone() (default)\n    was: func gone()"])


class BaselineTests(unittest.TestCase):
    def setUp(self):
        self.path = api["last_baseline"]()
        self.lines = self.path.read_text().splitlines()

    def test_versions_are_ordered_as_numbers(self):
        names = ["PushToTalk-0.9.0.txt", "PushToTalk-0.10.0.txt", "PushToTalk-0.2.11.txt"]
        self.assertEqual(max(map(pathlib.Path, names), key=api["version_of"]).name, "PushToTalk-0.10.0.txt")

    def test_a_line_is_a_name_a_kind_and_a_declaration(self):
        self.assertGreater(len(self.lines), 250)
        self.assertEqual(self.lines, sorted(set(self.lines)))
        self.assertEqual({line.split(" | ", 2)[1] for line in self.lines}, {"", "case", "requirement", "default", "conformance"})

    def test_every_type_of_the_last_release_is_still_declared(self):
        text = "\n".join(path.read_text() for room in ("PushToTalk", "PushToTalkCore") for path in (ROOT / "Sources" / room).glob("*.swift"))
        declared = set(re.findall(r"(?m)^public (?:final )?(?:class|struct|enum|protocol|let) (\w+)", text))
        types = {re.split(r"[. ]", line)[0] for line in self.lines}
        self.assertGreater(len(types), 15)
        self.assertEqual(types - declared, set())


if __name__ == "__main__":
    unittest.main()
