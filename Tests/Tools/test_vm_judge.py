"""When a run of the virtual machine's line has failed."""
import pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "VM"))
from judge import DISTURBED_MAX, circumstances, verdict  # noqa: E402


class VerdictTests(unittest.TestCase):
    def test_every_burst_has_to_hold(self):
        self.assertFalse(verdict(18, 0, 0)[0])
        self.assertTrue(verdict(18, 1, 0)[0])

    def test_bursts_that_are_not_judged_fail_the_run_whatever_the_others_are(self):
        self.assertFalse(verdict(18, 0, DISTURBED_MAX)[0])
        self.assertTrue(verdict(18, 1, DISTURBED_MAX)[0])
        self.assertTrue(verdict(18, 0, DISTURBED_MAX + 1)[0])

    def test_a_run_without_a_judged_burst_fails(self):
        self.assertTrue(verdict(0, 0, 0)[0])
        self.assertTrue(verdict(2, 0, 2)[0])

    def test_a_burst_that_failed_tells_what_the_guest_did_then(self):
        burst = {"page_reads": {"pttd": 3}, "waits_ms": {"dbus": {"io": 2.5, "cpu": 4}}}
        self.assertEqual(list(circumstances(burst)), ["pttd read 3 pages from the disk", "dbus waited: 2.5 ms for io, 4 ms for cpu"])


if __name__ == "__main__":
    unittest.main()
