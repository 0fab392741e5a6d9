// An accessory's light: which bytes are written when, never more than one write at a time.
import BlueZ
import MonotonicTime

/// The rules for the light, and for the start commands before it, of one GATT accessory.
struct LightStateMachine: Sendable {
    /// How long "refused" is shown before what is so.
    static let refusedTime = Duration.milliseconds(1500)

    enum Event: Sendable {
        /// The accessory is subscribed to. Its start commands, which are writes, and where its light is.
        case ready(start: [BluetoothCommand], light: CharacteristicIdentifier?, values: [AccessoryFeedback: [UInt8]])
        case lost
        case feedback(AccessoryFeedback)
        case completed(BluetoothFailure?)
        case deadline
    }

    enum Action: Equatable, Sendable {
        case write(BluetoothCommand)
        /// Writing does not work; said once.
        case note(String)
    }

    private var waiting: [BluetoothCommand] = []
    private var light: CharacteristicIdentifier?
    private var values: [AccessoryFeedback: [UInt8]] = [:]
    private var isReady = false
    private var feedback: AccessoryFeedback
    private var refusedUntil: Instant?
    /// What the light was last told.
    private var shown: [UInt8]?
    private var isWriting = false
    /// Writes that failed since the daemon started.
    private(set) var failureCount = 0

    init(_ feedback: AccessoryFeedback) { self.feedback = feedback == .refused ? .idle : feedback }

    var nextDeadline: Instant? { refusedUntil }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .ready(let start, let light, let values):
            (waiting, self.light, self.values) = (start, light, values)
            isReady = true
            shown = nil
        case .lost:
            isReady = false
            waiting = []
            shown = nil
            // The answer may come when the device is nobody's.
            isWriting = false
        case .feedback(.refused):
            refusedUntil = now + Self.refusedTime
        case .feedback(let state):
            feedback = state
            // Who speaks now must see it; everything else can wait until the refusal has been seen.
            if state == .transmitting { refusedUntil = nil }
        case .completed(let failure):
            isWriting = false
            if let failure, failure != .notConnected, failure != .doesNotExist, failure != .serviceGone {
                failureCount += 1
                if failureCount == 1 {
                    actions.append(.note("its light or start command cannot be written (\(failure))"))
                }
            }
        case .deadline:
            break
        }
        if let until = refusedUntil, until <= now { refusedUntil = nil }
        return actions + write()
    }

    /// The latest counts: what changed while a write was under way is written once, as it is at its end.
    private mutating func write() -> [Action] {
        guard isReady, !isWriting else { return [] }
        if !waiting.isEmpty {
            isWriting = true
            return [.write(waiting.removeFirst())]
        }
        let state = refusedUntil != nil && values[.refused] != nil ? .refused : feedback
        guard let light, let value = values[state], value != shown else { return [] }
        shown = value
        isWriting = true
        return [.write(.write(characteristic: light, value: value))]
    }
}
