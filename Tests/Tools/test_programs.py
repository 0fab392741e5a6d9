#!/usr/bin/python3
"""How the shipped programs are linked, and what `make install` makes of them. After `make release`.

    python3 Tests/Tools/test_programs.py
    Tests/Debian/in-root trixie env SCRATCH=.build-trixie python3 Tests/Tools/test_programs.py
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ROOT / os.environ.get("SCRATCH", ".build") / "release"
PROGRAMS = ("pttd", "pttctl", "pttrelay")
LIBRARY = "lib/pttd/libpttd-swift.so"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def stem(name):
    """A library package's name without its number."""
    return re.sub(r"[\d.-]+(t64)?$", "", name)


@unittest.skipUnless(all((BUILT / name).exists() for name in PROGRAMS), "`make release` makes the programs")
class ProgramTests(unittest.TestCase):
    def test_programs_bind_all_symbols_at_the_start_at_a_random_address(self):
        for name in PROGRAMS:
            dynamic = output("readelf", "-dW", BUILT / name)
            self.assertRegex(dynamic, r"\(FLAGS\)\s+.*BIND_NOW", name)
            self.assertRegex(dynamic, r"\(FLAGS_1\).*PIE", name)
            self.assertIn("GNU_RELRO", output("readelf", "-lW", BUILT / name), name)

    def test_programs_search_no_library_beside_themselves(self):
        for name in PROGRAMS:
            self.assertNotRegex(output("readelf", "-dW", BUILT / name), "RUNPATH|RPATH", name)

    def test_c_code_calls_the_checked_functions_of_libc(self):
        for name in PROGRAMS:
            self.assertRegex(output("nm", "-D", BUILT / name), r"U __\w+_chk\b", name)
            self.assertIn("__stack_chk_fail", output("nm", "-D", BUILT / name), name)

    def test_the_readme_names_the_packages_of_the_libraries_that_they_are_linked_to(self):
        packages = set()
        for name in PROGRAMS:
            wanted = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", BUILT / name)))
            for library, path in re.findall(r"(\S+) => (\S+)", output("ldd", BUILT / name)):
                if library in wanted:
                    # dpkg knows most of Debian 12's libraries by their place before /lib became a link.
                    real = os.path.realpath(path)
                    found = subprocess.run(["dpkg-query", "-S", real, real.removeprefix("/usr")], capture_output=True, text=True).stdout
                    packages.add(found.split(":")[0])
        packages -= {"libc6", "libgcc-s1"}                  # everybody has them
        readme = (ROOT / "README.md").read_text()
        # Debian 13's names stand for those of Debian 12 that are the same but for their number.
        listed = {stem(name): name for name in re.findall(r"\blib\S+", re.search(r"`sudo apt-get install (dbus bluez .*)`", readme)[1])}
        if int(re.search(r'VERSION_ID="?(\d+)', pathlib.Path("/etc/os-release").read_text())[1]) >= 13:
            listed |= {stem(name): name for name in re.search(r"On Debian 13 .*?`(.*?)`", readme)[1].split()}
        self.assertEqual(set(listed.values()) - {"libasound2-plugins"}, packages)

    def test_no_program_has_the_whole_of_foundation(self):
        for name in PROGRAMS:
            # Not assertNotIn: it would print every symbol.
            self.assertFalse("icudt" in output("nm", BUILT / name), f"{name} has ICU's tables")

    def test_installed_programs_are_stripped_and_their_symbols_are_found_by_build_id(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["make", "-s", "install", f"SCRATCH={BUILT.parent}", f"DESTDIR={folder}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            for name in [LIBRARY, *(f"bin/{name}" for name in PROGRAMS)]:
                file = pathlib.Path(folder, "usr", name)
                self.assertNotIn(".debug_info", output("readelf", "-SW", file), name)
                found = re.search(r"Build ID: (\w{2})(\w+)", output("readelf", "-n", file))
                symbols = pathlib.Path(folder, "usr/lib/debug/.build-id", found[1], f"{found[2]}.debug")
                # The toolchain's archives have names, and no lines.
                self.assertIn(".symtab" if name == LIBRARY else ".debug_info", output("readelf", "-SW", symbols), name)
                self.assertIn(found[1] + found[2], output("readelf", "-n", symbols), name)
                if name != LIBRARY:
                    self.assertTrue(output(file, "--version").strip(), name)

    def test_installed_programs_are_small_and_two_of_them_share_a_library_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["make", "-s", "install", f"SCRATCH={BUILT.parent}", f"DESTDIR={folder}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            # Of pttd, 6 MB are SwiftNIO with its TLS, for networks that block UDP.
            bounds = {"bin/pttd": 23, "bin/pttctl": 8, LIBRARY: 14, "bin/pttrelay": 33}
            for name, megabytes in bounds.items():
                self.assertLess(pathlib.Path(folder, "usr", name).stat().st_size, megabytes * 1_000_000, name)
            for name in ("bin/pttd", "bin/pttctl"):
                dynamic = output("readelf", "-dW", pathlib.Path(folder, "usr", name))
                self.assertRegex(dynamic, r"NEEDED.*\[libpttd-swift\.so\]", name)
                self.assertEqual(re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", dynamic), ["$ORIGIN/../lib/pttd"], name)
            library = output("readelf", "-dW", pathlib.Path(folder, "usr", LIBRARY))
            self.assertRegex(library, r"\(FLAGS\)\s+.*BIND_NOW")
            self.assertNotRegex(library, "RUNPATH|RPATH")


if __name__ == "__main__":
    unittest.main()
