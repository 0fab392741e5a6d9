// How a sound device that fails within a burst, or is held by another program, is tried again. Pure.
import MonotonicTime

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// The attempts to get a device back: a headset that is plugged in again, a default that moved to another card, a sound
/// server that restarts, another program that lets go.
struct DeviceRecovery {
    /// How long it is tried; what is lost for longer has to be pressed for again.
    static let limit = Duration.seconds(1)
    private static let pauses: [Duration] = [.milliseconds(20), .milliseconds(50), .milliseconds(100)]

    /// When the device is to be opened next; nil: it is open, as far as is known.
    private(set) var nextAttempt: Instant?
    /// Since when the device is lost.
    private(set) var lostAt = Instant.zero
    /// From the first failure until samples flow again: a device that opens and fails again gets no second limit.
    private(set) var isLost = false
    private var attempts = 0

    /// The device failed within a burst.
    ///
    /// - Returns: Whether it is tried again; otherwise the burst is over.
    mutating func lost(_ fault: AudioFault, hasDelivered: Bool, at now: Instant) -> Bool {
        guard Self.isWorthTrying(fault, hasDelivered: hasDelivered) else { return false }
        if !isLost {
            isLost = true
            lostAt = now
            attempts = 0
        }
        let next = now + Self.pauses[min(attempts, Self.pauses.count - 1)]
        attempts += 1
        nextAttempt = next < lostAt + Self.limit ? next : nil
        return nextAttempt != nil
    }

    /// The device is being opened.
    mutating func attempting() { nextAttempt = nil }

    /// Samples flow, or the burst is over.
    mutating func settled() {
        isLost = false
        nextAttempt = nil
    }

    /// A device that never gave a sample is waited for only while another program holds it; what is no fault of the
    /// device does not get better by opening it again.
    private static func isWorthTrying(_ fault: AudioFault, hasDelivered: Bool) -> Bool {
        switch fault.operation {
        case .open, .configure, .start:
            hasDelivered || fault.code == EBUSY || fault.code == EAGAIN
        case .transfer, .resume: hasDelivered
        case .stall, .readFile, .writeFile, .parseFile, .fileFull, .encode, .overload: false
        }
    }
}
