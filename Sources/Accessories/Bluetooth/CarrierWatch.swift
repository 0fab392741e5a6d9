// Whether the service that carries presses to us still works: one that hangs would hide a release.
import MonotonicTime

/// A service that hands the presses of Bluetooth accessories on. (The bytes of a serial port come from the kernel itself.)
enum PressCarrier: String, Hashable, Sendable, CaseIterable {
    /// Notifications of characteristics.
    case bluetoothd
    /// Commands of the hands-free profile.
    case blueALSA

    /// What it is called, and how it is started anew.
    var problem: String {
        switch self {
        case .bluetoothd: "bluetoothd hangs, so that its presses cannot be heard: systemctl restart bluetooth"
        case .blueALSA: "BlueALSA hangs, so that its presses cannot be heard: systemctl restart bluealsa"
        }
    }
}

/// The rules for one carrier. While a control is held, and only then, it is asked for a sign of life.
struct CarrierWatch: Sendable {
    /// The pause between a sign of life and the next question.
    static let pause = Duration.milliseconds(100)
    /// A carrier without a sign of life for so long counts as lost. A question has 400 ms of it: a bluetoothd that works
    /// answers within a few milliseconds, and it takes many times the longest pause that it makes.
    static let patience = Duration.milliseconds(500)
    /// When our own turn comes later than this, the answer may be waiting to be read. That is believed once a question.
    static let lateness = Duration.milliseconds(50)

    enum Event: Sendable {
        /// A control that it carries is held, or none any more.
        case held(Bool)
        /// It handed a value on.
        case alive
        /// The question was answered, with whatever; or it was not.
        case answered(Bool)
        case deadline
    }

    enum Action: Equatable, Sendable {
        /// Ask it, and tell the answer.
        case probe
        /// It hangs: nothing that is held through it is known to be held.
        case lost
        /// It works again.
        case back
    }

    private var isHeld = false
    /// One question is under way at most.
    private var isAsking = false
    /// It hangs, and nothing has been heard of it since.
    private(set) var isLost = false
    private var lastSign = Instant.zero
    /// Set when a deadline came late because of us.
    private var reprieve: Instant?

    init() {}

    var nextDeadline: Instant? {
        guard isHeld, !isLost else { return nil }
        return isAsking ? reprieve ?? lastSign + Self.patience : lastSign + Self.pause
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .held(let isHeld):
            guard self.isHeld != isHeld else { return [] }
            self.isHeld = isHeld
            // What begins it is a sign of life.
            return isHeld ? sign(at: now) : []
        case .alive:
            return sign(at: now)
        case .answered(let isAnswer):
            guard isAsking else { return [] }
            isAsking = false
            if isAnswer { return sign(at: now) }
            // Whoever hangs is asked until it answers; each question is given up after seconds.
            guard isLost else { return [] }
            isAsking = true
            return [.probe]
        case .deadline:
            guard let due = nextDeadline, due <= now else { return [] }
            guard isAsking else {
                isAsking = true
                return [.probe]
            }
            guard now - due <= Self.lateness || reprieve != nil else {
                reprieve = now + Self.pause
                return []
            }
            isLost = true
            return [.lost]
        }
    }

    private mutating func sign(at now: Instant) -> [Action] {
        lastSign = now
        reprieve = nil
        guard isLost else { return [] }
        isLost = false
        return [.back]
    }
}
