// When a device that went away while it ran is opened again: at once, then ever more rarely, and not for long.
import MonotonicTime

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// The tries to get a device back in the middle of a burst: a plug that was pulled and put in again, a sound server that
/// restarted, a default that moved. Only while the burst goes on, and for `most` at the longest: then the burst fails.
struct Reopening {
    /// Below the engines' own limit for a device that moves nothing (2 s).
    static let most = Duration.milliseconds(1_700)
    static let pauseMin = Duration.milliseconds(20)
    static let pauseMax = Duration.milliseconds(200)
    /// So many times in one burst; a device that goes away more often is not worth the noise.
    static let timesMax = 8

    private var fault: AudioFault?
    private var lostAt = Instant.zero
    private var nextTry = Instant.zero
    private var pause = pauseMin
    private var times = 0

    /// A burst begins.
    mutating func reset() { self = Reopening() }

    /// The device failed while it ran.
    ///
    /// - Throws: `fault`, when trying again makes no sense.
    mutating func lost(_ fault: AudioFault, at now: Instant) throws(AudioFault) {
        guard Self.mayPass(fault), times < Self.timesMax else { throw fault }
        times += 1
        self.fault = fault
        lostAt = now
        pause = Self.pauseMin
        nextTry = now
    }

    /// Waits until the next try is due, at most `pauseMax`. False, or the fault of before, when there is none.
    mutating func isDue() throws(AudioFault) -> Bool {
        guard fault != nil else { throw AudioFault(.transfer, ENODEV) }
        sleep(until: nextTry)
        return true
    }

    /// The try failed.
    ///
    /// - Throws: The fault, when that was the last one.
    mutating func failed(_ fault: AudioFault, at now: Instant) throws(AudioFault) {
        guard Self.mayPass(fault), now - lostAt < Self.most else { throw fault }
        nextTry = now + pause
        pause = min(Self.pauseMax, pause + pause)
    }

    mutating func succeeded() { fault = nil }

    /// Whether time may heal it. A device that is unknown for now may be one that is not plugged in again yet.
    private static func mayPass(_ fault: AudioFault) -> Bool {
        switch fault.code {
        case EACCES, EPERM, ENOTSUP, ENOMEM, EMFILE, ENFILE: false
        default: true
        }
    }
}
