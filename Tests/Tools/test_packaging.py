#!/usr/bin/python3
"""The version is the same everywhere, and what packages depend on is what the Makefile installs.

    python3 Tests/Tools/test_packaging.py
"""
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version():
    return subprocess.run([ROOT / "debian/tools/version"], check=True, capture_output=True, text=True).stdout.strip()


class PackagingTests(unittest.TestCase):
    def test_the_version_is_that_of_both_changelogs(self):
        self.assertRegex(version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(re.match(r"pttd \((\S+)\)", (ROOT / "debian/changelog").read_text())[1], version())
        self.assertIn(f"\n## [{version()}]", (ROOT / "CHANGELOG.md").read_text())

    def test_build_dependencies_are_those_that_make_installs(self):
        wanted = re.search(r"(?ms)^BUILD_PACKAGES := (.*?[^\\])$", (ROOT / "Makefile").read_text())[1].replace("\\", "").split()
        control = re.search(r"(?ms)^Build-Depends:\n(.*?)^\S", (ROOT / "debian/control").read_text())[1]
        named = {line.strip().rstrip(",").split(" ")[0] for line in control.splitlines()}
        self.assertEqual(named - {"debhelper-compat", "dh-sequence-installsysusers"}, set(wanted))

    def test_services_are_started_again_after_any_end_but_a_mistake(self):
        """With Type=dbus, a lost connection to the bus looks like a good end, which Restart=on-failure leaves alone."""
        for name in ["pttd.service", "pttrelay.service", "user/pttd.service"]:
            unit = (ROOT / "systemd" / name).read_text()
            with self.subTest(name):
                self.assertRegex(unit, r"(?m)^Restart=always$")
                self.assertRegex(unit, r"(?m)^StartLimitIntervalSec=0$")
                self.assertRegex(unit, r"(?m)^RestartPreventExitStatus=78 64$")
                self.assertRegex(unit, r"(?m)^WatchdogSec=\d+$")

    def test_a_manifest_of_the_tarball_names_no_address(self):
        source = (ROOT / "debian/tools/dist").read_text().removesuffix('if __name__ == "__main__":\n    main()\n')
        dist = {"__file__": str(ROOT / "debian/tools/dist"), "__name__": "dist"}
        exec(compile(source, "dist", "exec"), dist)
        manifest = (ROOT / "Package.swift").read_text()
        names = [u.rsplit("/", 1)[1] for u in re.findall(r'\.package\(url: "([^"]+)"', manifest)]
        changed = dist["manifest_with_paths"](manifest, [*names, "swift-atomics"])
        self.assertNotIn(".package(url:", changed)
        self.assertEqual(changed.count('.package(path: "Dependencies/'), len(names) + 1)
        self.assertIn('.package(path: "Dependencies/hummingbird", traits: [])', changed)
        with self.assertRaises(SystemExit):
            dist["manifest_with_paths"](manifest, names[1:])

    def test_sources_without_git_name_the_commit_of_the_tarball(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "debian/tools").mkdir(parents=True)
            script = tree / "debian/tools/commit"
            script.write_bytes((ROOT / "debian/tools/commit").read_bytes())
            script.chmod(0o755)
            said = lambda: subprocess.run([script], capture_output=True, text=True, check=False).stdout
            self.assertEqual(said(), "")
            (tree / "COMMIT").write_text('0123abcd4567"\n')
            self.assertEqual(said(), "0123abcd4567")


if __name__ == "__main__":
    unittest.main()
