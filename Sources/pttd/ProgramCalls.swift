// What is told to the programs on the bus, and when, and the order of their requests.
import DaemonAPI
import PushToTalkCore

/// The delegates of the programs that have registered, and the callbacks that wait. No I/O: what is to be told is
/// returned.
struct ProgramCalls {
    /// A callback whose turn it is.
    struct Due {
        let callback: DelegateCallback
        /// Whom it is for; nil: the program is gone.
        let delegate: ApplicationDelegate?
        /// Called when the program has answered, or cannot be told.
        let told: (@Sendable () -> Void)?
    }

    /// Whether a program that registers knows of its channel.
    private enum Restoration {
        case untold
        case told
        /// Its registration waits.
        case awaited(CheckedContinuation<Void, Never>)
    }

    private var delegates: [String: ApplicationDelegate] = [:]
    private var restorations: [String: Restoration] = [:]
    /// Joins whose channel is not on the bus yet: callbacks wait for that.
    private var joinsUnderWay = 0
    private var held: [(callback: DelegateCallback, busName: String, told: (@Sendable () -> Void)?)] = []

    /// The delegate of the program of this unique name.
    subscript(busName: String) -> ApplicationDelegate? {
        get { delegates[busName] }
        set { delegates[busName] = newValue }
    }

    /// A callback for a program; nil: it has to wait until the channel of a join is on the bus.
    mutating func tell(
        _ callback: DelegateCallback, to busName: String, told: (@Sendable () -> Void)? = nil
    ) -> Due? {
        guard joinsUnderWay == 0 else {
            held.append((callback, busName, told))
            return nil
        }
        return Due(callback: callback, delegate: delegates[busName], told: told)
    }

    /// A channel is being joined: a program that is told of its channel finds it on the bus.
    mutating func joinBegins() { joinsUnderWay += 1 }

    /// A channel that was joined is on the bus, or was not joined. Returns the callbacks that waited for that.
    mutating func joinEnds() -> [Due] {
        joinsUnderWay -= 1
        guard joinsUnderWay == 0 else { return [] }
        defer { held = [] }
        return held.map { Due(callback: $0.callback, delegate: delegates[$0.busName], told: $0.told) }
    }

    /// A registering program is being told of its channel.
    mutating func restorationBegins(of busName: String) { restorations[busName] = .untold }

    /// It has answered, or does not answer.
    mutating func restorationEnds(of busName: String) {
        guard case .awaited(let continuation)? = restorations.updateValue(.told, forKey: busName) else { return }
        restorations[busName] = nil
        continuation.resume()
    }

    /// Whether its registration has to `wait` until it has answered.
    mutating func mustWait(_ busName: String) -> Bool {
        if case .untold? = restorations[busName] { return true }
        restorations[busName] = nil
        return false
    }

    /// Its registration waits from now on.
    mutating func wait(_ busName: String, _ continuation: CheckedContinuation<Void, Never>) {
        restorations[busName] = .awaited(continuation)
    }
}

/// The requests of callers that wait for an earlier one of the same caller. They stay in order, although some wait for information from the
/// bus.
struct CallerTurns {
    /// Requests of one caller that wait, but for those that end something.
    static let waitingMax = 64
    /// With those. Behind each request that begins something there is space for its end.
    static let waitingWithEndsMax = 128

    /// No entry while nothing of a caller is under way.
    private var waiting: [String: [CheckedContinuation<Void, Never>]] = [:]

    /// Begins a request of a caller.
    ///
    /// - Parameter isEnd: Whether it ends something.
    /// - Returns: Whether it has to `wait` for an earlier one.
    /// - Throws: When too many wait.
    mutating func begin(_ caller: String, isEnd: Bool) throws(PTChannelError) -> Bool {
        guard let earlier = waiting[caller] else {
            waiting[caller] = []
            return false
        }
        guard earlier.count < (isEnd ? Self.waitingWithEndsMax : Self.waitingMax) else {
            throw PTChannelError(.unknown, explanation: "this caller has too many pending requests; try again")
        }
        return true
    }

    /// The request waits from now on.
    mutating func wait(_ caller: String, _ turn: CheckedContinuation<Void, Never>) { waiting[caller]?.append(turn) }

    /// Lets the caller's next request continue after the current one.
    mutating func end(_ caller: String) {
        if waiting[caller]?.isEmpty == false { waiting[caller]?.removeFirst().resume() } else { waiting[caller] = nil }
    }
}
