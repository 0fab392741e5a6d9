// Rules of a sound device's life: how it is recovered, when it has stalled, whether it has a clock, and whether it is BlueALSA's. Pure;
// both directions.
import Glibc
import MonotonicTime

/// The attempts to get a device back: a headset that is plugged in again, a default that moved to another card, a sound
/// server that restarts, another program that lets go.
///
/// At once, then ever more rarely, and for `limit` at the longest: then what it was used for has failed. One action at
/// most comes of an event, so nothing is allocated.
struct DeviceRecovery {
    /// What happened.
    enum Event {
        /// The device is to be used for something new. `isOpen`: it has been open since before.
        case began(isOpen: Bool)
        /// It failed.
        case failed(AudioFault)
        /// `nextDeadline` has come.
        case due
        /// Samples flow. The instant is that of the first one.
        case flowed
        /// What it was used for is over.
        case ended
    }

    /// What is to be done.
    enum Action: Equatable {
        case nothing
        /// Close the device and wait until `nextDeadline`; `isFirst`: it has not been lost already.
        case wait(isFirst: Bool)
        /// Open the device and set it running.
        case open
        /// Nothing: it has recovered, `after` this time.
        case isBack(after: Duration)
        /// Nothing more is tried.
        case giveUp(AudioFault)
    }

    /// How long it is tried. Below the engines' own limit for a device that moves nothing (2 s).
    static let limit = Duration.milliseconds(1_500)
    /// The pause between two attempts: the first comes at once, the second after the least, then after twice as much.
    static let pauseMin = Duration.milliseconds(20)
    static let pauseMax = Duration.milliseconds(200)
    /// So many times for one use; a device that goes away more often is not worth the noise.
    static let lossesMax = 8

    /// When the device is to be opened next; nil: it is open, as far as is known.
    private(set) var nextDeadline: Instant?
    /// Since when it is lost, until samples flow again: a device that opens and fails again gets no second limit.
    private var lostAt: Instant?
    private var pause = Duration.zero
    private var losses = 0
    /// Whether it has worked: samples have flowed in this use, or it was opened before.
    private var hasWorked = false

    /// Whether the device is lost, or open again without having moved a sample yet.
    var isLost: Bool { lostAt != nil }

    mutating func handle(_ event: Event, at now: Instant) -> Action {
        switch event {
        case .began(let isOpen):
            self = DeviceRecovery()
            hasWorked = isOpen
            return .nothing
        case .ended:
            self = DeviceRecovery()
            return .nothing
        case .failed(let fault): return failed(fault, at: now)
        case .due:
            guard let due = nextDeadline, now >= due else { return .nothing }
            nextDeadline = nil
            return .open
        case .flowed:
            hasWorked = true
            guard let since = lostAt else { return .nothing }
            lostAt = nil
            nextDeadline = nil
            return .isBack(after: now - since)
        }
    }

    private mutating func failed(_ fault: AudioFault, at now: Instant) -> Action {
        let isFirst = lostAt == nil
        if isFirst {
            losses += 1
            pause = .zero
        }
        let since = lostAt ?? now
        let next = now + pause
        guard mayPass(fault), losses <= Self.lossesMax, next < since + Self.limit else {
            nextDeadline = nil
            return .giveUp(fault)
        }
        lostAt = since
        nextDeadline = next
        pause = min(Self.pauseMax, max(Self.pauseMin, pause + pause))
        return .wait(isFirst: isFirst)
    }

    /// Whether a retry may help. A device that never moved a sample is retried only while another program uses it. A
    /// device that worked and is unknown now may be unplugged for a moment. A device that was left open may have
    /// vanished while unused, for example because its sound server was restarted; only the next use shows that.
    private func mayPass(_ fault: AudioFault) -> Bool {
        switch fault.operation {
        case .open, .configure, .start, .transfer, .resume: break
        case .stall, .silence, .readFile, .writeFile, .parseFile, .fileFull, .encode, .overload: return false
        }
        switch fault.code {
        case EACCES, EPERM, ENOTSUP, ENOMEM, EMFILE, ENFILE: return false
        default: return hasWorked || fault.isBusy
        }
    }
}

extension AudioFault {
    /// Whether another program holds the device.
    var isBusy: Bool { operation != .stall && (code == EBUSY || code == EAGAIN) }
}

/// The waiting time since the device last moved samples.
///
/// Only time in which it was watched counts. After a halt of the machine or the program of more than `limit`, the
/// device may be fine.
struct StallClock {
    /// A device has stalled when it moves nothing for this time.
    static let limit = Duration.seconds(2)
    /// One wait for a device lasts 100 ms; of a longer one no more than twice that is counted.
    static let waitMax = Duration.milliseconds(200)

    private var still = Duration.zero
    private var lookedAt = Instant.zero

    /// The device was set running, or moved samples.
    mutating func moved(at now: Instant) {
        still = .zero
        lookedAt = now
    }

    /// It was waited for, and moved nothing. Returns whether it has stalled.
    mutating func movedNothing(at now: Instant) -> Bool {
        still += max(.zero, min(now - lookedAt, Self.waitMax))
        lookedAt = now
        return still > Self.limit
    }
}

/// What was written to a PCM, or read from it, and how far that is ahead of the time that has passed.
///
/// ALSA's `null` and `file` take and give everything at once; a card is ahead of time by its drift only, and what was written
/// and is not waiting any more may be held by a sound server, or have been heard.
struct MovedFrames {
    /// A PCM that is ahead of time by more has no clock.
    static let aheadMax = Duration.milliseconds(50)
    /// So much of the time that has passed may be drift: twice what cards keep.
    private static let drift = 0.001

    private let rate: Int
    private var count = 0
    private var since: Instant
    /// Whether frames were ever seen to wait, as none do in a PCM without a clock.
    private var hasClock = false

    /// A PCM of `rate` that is started at `now`.
    init(rate: Int, at now: Instant) {
        self.rate = max(1, rate)
        since = now
    }

    mutating func add(_ frames: Int) { count += frames }

    /// At `now`, `frames` frames (at least one) were waiting in the PCM: at least that many have not been heard.
    mutating func isSeen(waiting frames: Int, at now: Instant) {
        hasClock = true
        if ahead(at: now) < frames {
            count = frames
            since = now
        }
    }

    /// Frames that, by this machine's clock, cannot have been played, or captured, yet. Where the PCM has a clock a drift is
    /// allowed for: it is what was last seen waiting, or more.
    func ahead(at now: Instant) -> Int { count - Int(passed(at: now) * (hasClock ? 1 + Self.drift : 1)) }

    /// Until when a PCM without a clock is to be left alone, so as not to be further ahead than `waiting` frames; nil for one
    /// that is not ahead.
    func pause(beyond waiting: Int = 0, at now: Instant) -> Instant? {
        let ahead = ahead(at: now) - waiting
        let allowed = Double(rate) * Self.aheadMax.milliseconds / 1_000 + passed(at: now) * Self.drift
        return Double(ahead) > allowed ? now + .nanoseconds(ahead * 1_000_000_000 / rate) : nil
    }

    /// In frames.
    private func passed(at now: Instant) -> Double {
        min(1e15, max(0, Double((now - since).nanoseconds) * Double(rate) / 1e9))
    }
}

/// BlueALSA's devices: the microphone and the speaker of a Bluetooth headset.
///
/// Unlike a sound server, it gives each to one stream at a time, and has it from the agreement on parameters until it is closed: one
/// that rests would keep the next one out, and the link up. And a link that comes up gives no sound at first.
enum BlueALSADevice {
    /// Whether `name` is one of the names that BlueALSA's configuration of ALSA defines.
    static func isMeant(by name: String) -> Bool { name.hasPrefix("bluealsa") }
}
