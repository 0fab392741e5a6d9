"""The checker of floors finds what it is for, and nothing where nothing is wrong."""
import pathlib
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]
import floors  # noqa: E402

MS = 1_000_000


def event(message, at, **words):
    return {"message": message, "metadata": {key: str(value) for key, value in words.items()}, "t": at * MS}


def run(name, *events, end=100_000, frozen=None):
    return floors.Run(name, [event("member joined", 0, member="m", ssrc="a1"), event("member joined", 0, member="n", ssrc="b2"), *events],
                      end * MS, None if frozen is None else frozen * MS)


def granted(at, request, member="m"):
    return event("floor granted", at, member=member, request=request)


def released(at, ssrc="a1"):
    return event("floor released", at, ssrc=ssrc)


def problems(runs, *told):
    return floors.judge(runs, [at * MS for at in told])[1]


class Judging(unittest.TestCase):
    def test_one_after_the_other_is_as_it_should_be(self):
        first = run("r1", granted(1_000, 1), released(2_000), granted(3_000, 2, "n"), end=3_500)
        second = run("r2", granted(3_600, 1, "n"), released(5_000, "b2"))
        self.assertEqual(problems([first, second], 1_001, 3_001, 3_601), [])

    def test_two_at_a_time_are_found_at_one_relay_and_at_two(self):
        one = run("r1", granted(1_000, 1), granted(1_500, 1, "n"), released(2_000), released(2_500, "b2"))
        self.assertEqual(problems([one], 1_001, 1_501), ["r1 granted request 1 while r1 had granted 1, for 500.0 ms"])
        first, second = run("r1", granted(1_000, 1), released(2_000)), run("r2", granted(1_900, 7, "n"), released(1_950, "b2"))
        self.assertEqual(problems([first, second], 1_001, 1_901), ["r2 granted request 7 while r1 had granted 1, for 50.0 ms"])

    def test_a_long_floor_is_not_forgotten_behind_a_short_one(self):
        first = run("r1", granted(1_000, 1), released(9_000))
        second = run("r2", granted(2_000, 7, "n"), released(3_000, "b2"), granted(5_000, 8, "n"), released(6_000, "b2"))
        self.assertEqual(len(problems([first, second], 1_001, 2_001, 5_001)), 2)

    def test_who_is_frozen_or_ended_has_no_floor_any_more(self):
        second = run("r2", granted(4_000, 1), released(5_000))
        self.assertEqual(problems([run("r1", granted(1_000, 1), released(9_000), frozen=2_000), second], 1_001, 4_001), [])
        self.assertEqual(problems([run("r1", granted(1_000, 1), end=2_000), second], 1_001, 4_001), [])
        self.assertEqual(len(problems([run("r1", granted(1_000, 1), end=4_500), second], 1_001, 4_001)), 1)

    def test_what_is_granted_twice_is_found(self):
        self.assertEqual(problems([run("r1", granted(1_000, 1), released(2_000), granted(3_000, 1), released(4_000))], 1_001, 3_001),
                         ["r1: request 1 was granted twice"])
        self.assertIn("r1: request 2 was granted while 1 of the same member was",
                      problems([run("r1", granted(1_000, 1), granted(1_500, 2), released(2_000))], 1_001, 1_501))

    def test_what_is_told_to_nobody_or_by_nobody_is_found(self):
        self.assertEqual(problems([run("r1", granted(1_000, 1), released(2_000))]), ["r1 granted request 1, and no member was told"])
        self.assertEqual(problems([run("r1", granted(1_000, 1), end=1_100)]), [])
        self.assertEqual(problems([run("r1", granted(1_000, 1), released(2_000))], 1_001, 1_002),
                         ["a member was told at 1.002 s that it has the floor, which no relay had granted"])

    def test_an_end_of_what_nobody_had_is_found(self):
        self.assertEqual(problems([run("r1", released(2_000))]), ["r1: a floor ended that nobody had (ssrc a1)"])

    def test_logs_are_read_as_they_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "relay2-1.log").write_text(
                "3.1 info pttrelay: member joined channel=Local member=m name=D replaced=false ssrc=a1 t=3100000000\n"
                "3.4 info pttrelay: floor granted channel=Local member=m request=1 t=3400000000\n"
                "4.4 info pttrelay: floor released bytes=1 channel=Local ssrc=a1 t=4400000000\n5.0 info pttrelay: relay stopped\n")
            (folder / "talker.log").write_text("3.4 info pttd.relay: floor granted burst=1 t=3400500000\n")
            (folder / "frozen.json").write_text('{"relay2-1": 4000000000}')
            self.assertEqual(floors.check(folder), [])
            runs, told = floors.read(folder)
            self.assertEqual((runs[0].end, runs[0].last, told), (5_000_000_000, 4_000_000_000, [3_400_500_000]))
            (folder / "talker.log").write_text("")
            self.assertEqual(len(floors.check(folder)), 0)
            (folder / "frozen.json").unlink()
            self.assertEqual(len(floors.check(folder)), 1)


if __name__ == "__main__":
    unittest.main()
