"""What is allowed, in one place. README.md says why."""

TAIL_S = 0.2                    # pttd's default `release-tail`
CLOSED_S = 1.5                  # after the finger has left the button the microphone is shut, whatever has failed
SENDS_S = 2.5                   # and nothing of it is sent any more: what was held is sent, repairs too
SENDING_DATAGRAMS, SENDING_SAMPLES = 6, 10      # so many in a tenth of a second, for so many tenths in a row, is speech
FLOOR_S = 7.0                   # and the floor is free: the relay takes it from who is silent for 5 s
TOLD_S = 8.5                    # and nobody is told that somebody speaks: listeners end a burst after 6 s without a packet

START_LOST_MS = 80              # of a judged press: what may be missing at its beginning,
END_LOST_MS = 40                # and before its end;
HOLES_MS = 80                   # silence within,
UNLIKE_SHARE = 0.25             # and pieces of 60 ms that are not what was said
UNAWARE_S = 30                  # a relay that was killed tells nobody: who is silent finds out by the keep-alive of 25 s
LATE_MS = 10                    # a machine whose threads wake later than this is not judged by samples,
HALTED_MS = 200                 # and later than this not by sound at all;
BUSY_SHARE = 0.1                # nor is one whose threads waited for so much of the time: pttd, relay and sound server wait one after the other
WAY_LATE_MS = 100               # a way that hands datagrams on later than this is another network than the plan's: neither is judged
