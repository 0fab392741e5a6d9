import Glibc
// Recovers a sound device that fails in use, or that another program holds. Pure; both directions.
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
