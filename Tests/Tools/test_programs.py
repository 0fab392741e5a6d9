#!/usr/bin/python3
"""How the shipped programs are linked, and what `make install` makes of them. After `make release`.

    python3 Tests/Tools/test_programs.py
"""
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("pttd", "pttctl", "pttrelay")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@unittest.skipUnless(all((ROOT / ".build/release" / name).exists() for name in PROGRAMS), "`make release` makes the programs")
class ProgramTests(unittest.TestCase):
    def test_programs_bind_all_symbols_at_the_start_at_a_random_address(self):
        for name in PROGRAMS:
            dynamic = output("readelf", "-dW", ROOT / ".build/release" / name)
            self.assertRegex(dynamic, r"\(FLAGS\)\s+.*BIND_NOW", name)
            self.assertRegex(dynamic, r"\(FLAGS_1\).*PIE", name)
            self.assertIn("GNU_RELRO", output("readelf", "-lW", ROOT / ".build/release" / name), name)

    def test_programs_search_no_library_beside_themselves(self):
        for name in PROGRAMS:
            self.assertNotRegex(output("readelf", "-dW", ROOT / ".build/release" / name), "RUNPATH|RPATH", name)

    def test_c_code_calls_the_checked_functions_of_libc(self):
        for name in PROGRAMS:
            self.assertRegex(output("nm", "-D", ROOT / ".build/release" / name), r"U __\w+_chk\b", name)
            self.assertIn("__stack_chk_fail", output("nm", "-D", ROOT / ".build/release" / name), name)

    def test_installed_programs_are_stripped_and_their_symbols_are_found_by_build_id(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["make", "-s", "install", f"DESTDIR={folder}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            for name in PROGRAMS:
                program = pathlib.Path(folder, "usr/bin", name)
                self.assertNotIn(".debug_info", output("readelf", "-SW", program), name)
                found = re.search(r"Build ID: (\w{2})(\w+)", output("readelf", "-n", program))
                symbols = pathlib.Path(folder, "usr/lib/debug/.build-id", found[1], f"{found[2]}.debug")
                self.assertIn(".debug_info", output("readelf", "-SW", symbols), name)
                self.assertIn(found[1] + found[2], output("readelf", "-n", symbols), name)
                self.assertTrue(output(program, "--version").strip(), name)


if __name__ == "__main__":
    unittest.main()
