"""When a run of the virtual machine's line has failed."""
import pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "VM"))
from judge import DISTURBED_MAX, WEAK_MAX, verdict  # noqa: E402


class VerdictTests(unittest.TestCase):
    def test_every_burst_holds(self):
        self.assertEqual(verdict(18, 0, 0, True), (False, []))

    def test_some_may_be_weak_under_emulation_only(self):
        self.assertFalse(verdict(18, WEAK_MAX, 0, True)[0])
        self.assertTrue(verdict(18, WEAK_MAX + 1, 0, True)[0])
        self.assertTrue(verdict(18, 1, 0, False)[0])

    def test_bursts_that_are_not_judged_fail_the_run_whatever_the_others_are(self):
        for failures in (0, 2, WEAK_MAX):
            self.assertFalse(verdict(18, failures, DISTURBED_MAX, True)[0])
            self.assertTrue(verdict(18, failures, DISTURBED_MAX + 1, True)[0])

    def test_a_run_without_a_judged_burst_fails(self):
        self.assertTrue(verdict(0, 0, 0, True)[0])
        self.assertTrue(verdict(2, 0, 2, True)[0])


if __name__ == "__main__":
    unittest.main()
