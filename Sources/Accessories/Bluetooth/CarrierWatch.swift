// Whether the service that carries presses to us still works: one that hangs would hide a release.
import MonotonicTime

/// A service that hands the presses of Bluetooth accessories on. (The bytes of a serial port come from the kernel itself.)
package enum PressCarrier: String, Hashable, Sendable, CaseIterable, CustomStringConvertible {
    /// Notifications of characteristics.
    case bluetoothd
    /// Commands of the hands-free profile.
    case blueALSA

    /// As logs have it.
    package var description: String { rawValue }

    /// What it is called, and how it is started anew.
    var problem: String {
        switch self {
        case .bluetoothd: "bluetoothd hangs, so that its presses cannot be heard: systemctl restart bluetooth"
        case .blueALSA: "BlueALSA hangs, so that its presses cannot be heard: systemctl restart bluealsa"
        }
    }
}

/// The rules for one carrier. It is asked for signs of life while it is needed: often while a control is held, now and then while an
/// accessory may tell of a press, so that what waits in a carrier that hangs is no press when it is handed on.
struct CarrierWatch: Sendable {
    /// What a carrier is needed for.
    enum Need: Sendable {
        case nothing
        /// An accessory may tell of a press: that is to be a new one.
        case presses
        /// A control is held: its release is to be heard.
        case release
    }

    /// The pause between a sign of life and the next question while a control is held.
    static let pause = Duration.milliseconds(100)
    /// A carrier without a sign of life for so long while a control is held counts as lost. A question has 400 ms of it: a bluetoothd
    /// that works answers within a few milliseconds, and it takes many times the longest pause that it makes.
    static let answerTimeout = Duration.milliseconds(500)
    /// The pause between a sign of life and the next question while nothing is held: half a wake-up of each side a second.
    static let idlePause = Duration.seconds(2)
    /// How long a question may take while nothing is held.
    static let idleAnswerTimeout = Duration.seconds(1)
    /// When our own turn comes later than this, the answer may be waiting to be read. That is believed once a question.
    static let lateness = Duration.milliseconds(50)

    enum Event: Sendable {
        /// What it is needed for has changed.
        case needed(Need)
        /// It handed a value on.
        case alive
        /// The question was answered, with whatever; or it was not.
        case answered(Bool)
        /// The machine has slept.
        case woke
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

    private var need = Need.nothing
    /// When the question that is under way was asked; one at most.
    private var asked: Instant?
    /// It hangs, and nothing has been heard of it since.
    private(set) var isLost = false
    private var lastSign = Instant.zero
    /// When it went on after it hung.
    private var backAt: Instant?
    /// The machine has slept, and no question that was asked afterwards has been answered.
    private var hasSlept = false
    /// The question that is under way was asked before the machine slept.
    private var isAskedBefore = false
    /// Set when a deadline came late because of us.
    private var reprieve: Instant?

    init() {}

    var nextDeadline: Instant? {
        guard !isLost else { return nil }
        switch need {
        case .nothing: return nil
        case .presses:
            guard let asked else { return lastSign + Self.idlePause }
            return reprieve ?? max(asked, lastSign) + Self.idleAnswerTimeout
        case .release: return asked == nil ? lastSign + Self.pause : reprieve ?? lastSign + Self.answerTimeout
        }
    }

    /// Whether what it hands on may have waited in it.
    func handsOnBacklog(at now: Instant) -> Bool {
        isLost || hasSlept || backAt.map { now < $0 + PressDoubt.backlogTime } ?? false
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .needed(let need):
            guard self.need != need else { return [] }
            let isLess = self.need == .release || need == .nothing
            self.need = need
            reprieve = nil
            // A press and a new link are signs of life.
            return isLess ? [] : sign(at: now)
        case .alive:
            return sign(at: now)
        case .answered(let isAnswer):
            guard asked != nil else { return [] }
            asked = nil
            let actions = isAnswer ? sign(at: now) : []
            if isAnswer, hasSlept, !isAskedBefore {
                hasSlept = false
                backAt = now
            }
            isAskedBefore = false
            // Whoever hangs is asked until it answers; each question is given up after seconds.
            guard isLost || hasSlept else { return actions }
            asked = now
            return actions + [.probe]
        case .woke:
            hasSlept = true
            reprieve = nil
            isAskedBefore = asked != nil
            guard asked == nil else { return [] }
            asked = now
            return [.probe]
        case .deadline:
            guard let due = nextDeadline, due <= now else { return [] }
            guard asked != nil else {
                asked = now
                return [.probe]
            }
            guard now - due <= Self.lateness || reprieve != nil else {
                // A machine that slept wakes its services one by one.
                reprieve = now + (need == .release ? Self.pause : Self.idleAnswerTimeout)
                return []
            }
            if seededFault("a-hang-is-not-noticed") { return [] }
            isLost = true
            return [.lost]
        }
    }

    private mutating func sign(at now: Instant) -> [Action] {
        lastSign = now
        reprieve = nil
        guard isLost else { return [] }
        isLost = false
        backAt = now
        return [.back]
    }
}
