// Waiting for a device that BlueZ connects by itself, and asking for it now and then, for BlueZ or the kernel may miss it.
import MonotonicTime

extension GATTAccessoryStateMachine {
    /// Pauses before a device that BlueZ should connect by itself is asked for all the same: it may have lost sight of it. The
    /// last one is that of each further time.
    static let askPauses: [Duration] =
        [.seconds(15), .seconds(30)] + Array(repeating: .seconds(60), count: 18) + [.seconds(300)]

    mutating func wait(at now: Instant) {
        phase = .waiting(asksAfter: now + Self.askPauses[min(asks, Self.askPauses.count - 1)])
        problem = "asleep or out of range: press its button"
    }

    /// Asks for a device that BlueZ should connect by itself. It goes on waiting: whichever comes first has done it.
    mutating func ask(at now: Instant) -> [Action] {
        guard case .waiting(let due?) = phase, due <= now, let device else { return [] }
        asks += 1
        phase = .waiting(asksAfter: nil)
        return [.command(.connect(device: device.id))]
    }
}
