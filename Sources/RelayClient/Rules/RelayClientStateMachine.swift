// When a client connects, joins, gives up and tries again. Pure rules; `RelayClient` carries them out.
import MonotonicTime
import RelayProtocol

/// The life of a link: stopped, connecting, joining, ready, waiting to try again.
///
/// The back-off grows from 0.25 s to 30 s and is reset once the link was ready. Where the relay's name has several addresses, each has
/// its turn before there is a wait, as long as no relay is reached. It has no jitter: one relay serves few enough clients, and tests are
/// deterministic. A permanent refusal stops the link.
public struct RelayClientStateMachine: Sendable {
    /// What may happen to a link.
    public enum Event: Sendable, Equatable {
        /// The user wants the link.
        case join
        /// The user does not want it any more.
        case leave
        /// The first packet can carry early data (0-RTT).
        case earlyDataOffered
        /// The handshake is complete and the relay is the one the invitation names.
        case connected
        /// What was sent as early data is lost with its connection, and another one is still being made.
        case joinLost
        /// The relay let this end in, to the channel of that name.
        case welcomed(channelName: String)
        /// The relay did not let this end in.
        case refused(ServerMessage.JoinRefused)
        /// The connection failed or was lost.
        case connectionEnded(RelayLinkError)
        /// This machine's network has changed: what failed before may work now.
        case networkChanged
        /// The relay is somewhere else than where it is looked for.
        case relayFound
        /// The relay that is reached does not serve the channel, and has named the one that does.
        case sentOn
        /// Its name has so many addresses that this machine has a way to.
        case addressesFound(Int)
        /// Somebody speaks, and has a moment for the link to come.
        case wanted
        /// The relay broke the protocol.
        case violation(String)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Open a connection.
        case connect
        /// Send the join.
        case sendJoin
        /// Say goodbye on the control stream, if it is open, and close in good order.
        case sayGoodbye
        /// Close the connection, if there is one, with the code.
        case close(RelayCloseCode)
        /// The link is gone: what was under way on it ends.
        case linkLost
        /// Tell the user.
        case tell(RelayLinkState)
    }

    /// The waits before trying again, in milliseconds; the last one repeats.
    public static let backoffMilliseconds = [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000]
    /// The longest wait that a relay can ask for.
    public static let retryAfterMaximum: Duration = .seconds(600)
    /// How long connecting may take.
    public static let connectTimeout: Duration = .seconds(10)
    /// The same where it may be at other places as well: long enough for a second first packet.
    public static let connectTimeoutOfSeveral: Duration = .milliseconds(1_500)
    /// A host that says that nobody has the port does so within this time.
    static let refusalTime: Duration = .milliseconds(500)
    /// How long the relay may take to answer the join.
    public static let joinTimeout: Duration = .seconds(5)
    /// An idle link says something after this much silence (docs/relay-protocol.md, "keep-alive").
    public static let keepAlive: Duration = .seconds(25)
    /// The same where the relay's name has several addresses: another node of a cluster may serve by now.
    public static let keepAliveOfSeveral: Duration = .seconds(5)
    /// The same while the answer to the join is awaited.
    public static let joinKeepAlive: Duration = .milliseconds(500)
    /// An attempt older than this is restarted when the user speaks, because its packets are repeated less and less
    /// often.
    public static let attemptIsOld: Duration = .seconds(1)
    /// The same of an attempt that was begun for somebody who speaks: pressing again and again does not keep one from succeeding that
    /// needs less than this.
    public static let wantedAttemptIsOld: Duration = .seconds(3)

    /// A join of an attempt that was given up arrives within this time, if it does.
    public static let joinMayArrive: Duration = .seconds(2)

    private enum State: Sendable, Equatable {
        case stopped
        case connecting(deadline: Instant, joinSent: Bool)
        case joining(deadline: Instant)
        case ready
        /// `isFirm`: whatever happens to the network, for another machine or a false relay is behind it.
        case waiting(until: Instant, isFirm: Bool)
        case halted
    }

    private var state = State.stopped
    /// What the waits grow by; a press begins anew.
    private var failures = 0
    /// Attempts in a row that reached nobody. A press changes nothing in how long a network takes for a handshake.
    private var unanswered = 0
    private var attemptedAt = Instant.zero
    private var isWantedAttempt = false
    /// The last attempt was refused. The next one waits for its time, even if the user asks for it.
    private var isRefused = false
    /// When an attempt was given up for another one, and its join may still arrive.
    private var abandonedAt: Instant?
    /// Other places wait for their turn: an attempt at one of them does not last long.
    var hasOtherPlaces = false
    /// Addresses that take turns.
    private var addresses = 1
    /// The attempt at one of them has failed, and the next one has its turn at once.
    private var isBetweenAddresses = false
    /// How often relays have named others since the link was ready.
    private var timesSentOn = 0
    /// More often in a row a wait is between.
    static let timesSentOnMaximum = 4

    /// Whether bursts can be sent and received.
    public var isReady: Bool { state == .ready }

    /// Whether the answer to the join is awaited.
    public var isJoining: Bool {
        if case .joining = state { true } else { false }
    }

    /// Whether the attempt under way has lasted longer than one of several may: it began when no other place was known.
    func isAttemptOverdue(at now: Instant) -> Bool {
        guard case .connecting = state else { return false }
        return now - attemptedAt >= Self.connectTimeoutOfSeveral
    }

    private var hasSentJoin: Bool {
        switch state {
        case .joining, .connecting(_, joinSent: true): true
        case .connecting, .stopped, .ready, .waiting, .halted: false
        }
    }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    public var nextDeadline: Instant? {
        switch state {
        case .stopped, .ready, .halted: nil
        case .connecting(let deadline, _), .joining(let deadline): deadline
        case .waiting(let until, _): until
        }
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch (state, event) {
        case (.stopped, .join), (.halted, .join):
            forgetFailures()
            return connect(at: now)
        case (.stopped, _), (_, .join):
            return []
        case (let state, .leave):
            self.state = .stopped
            isBetweenAddresses = false
            let lost: [Action] = state == .ready ? [.linkLost] : []
            return lost + [.sayGoodbye, .tell(.stopped)]
        case (.halted, _):
            return []
        case (.connecting(let deadline, false), .earlyDataOffered):
            // When the relay does not take it so early, the transport sends it again after the handshake.
            state = .connecting(deadline: deadline, joinSent: true)
            return [.sendJoin]
        case (.connecting(let deadline, true), .joinLost):
            state = .connecting(deadline: deadline, joinSent: false)
            abandonedAt = now
            return []
        case (.connecting(_, let joinSent), .connected):
            state = .joining(deadline: now + Self.joinTimeout)
            return joinSent ? [] : [.sendJoin]
        case (.joining, .welcomed(let name)):
            state = .ready
            forgetFailures()
            timesSentOn = 0
            return [.tell(.ready(channelName: name))]
        case (.joining, .refused(let refusal)):
            return refused(refusal, at: now)
        case (.waiting(let until, isFirm: false), .networkChanged):
            forgetFailures()
            let soon = now + .milliseconds(Self.backoffMilliseconds[0])
            state = .waiting(until: min(until, soon), isFirm: false)
            return []
        case (.waiting(let until, isFirm: false), .wanted) where !isRefused:
            failures = 0
            let soonest = attemptedAt + .milliseconds(Self.backoffMilliseconds[0])
            state = .waiting(until: min(until, soonest), isFirm: false)
            return now >= soonest ? connect(forSomebody: true, at: now) : []
        case (.connecting, .relayFound), (.joining, .relayFound):
            forgetFailures()
            if hasSentJoin { abandonedAt = now }
            return [.close(.none)] + connect(at: now)
        case (.waiting(_, isFirm: false), .relayFound):
            forgetFailures()
            return connect(at: now)
        case (.joining, .sentOn):
            timesSentOn += 1
            guard timesSentOn <= Self.timesSentOnMaximum else {
                return lose(.busy("the relays send this end to each other"), closing: .joinRefused, at: now)
            }
            isBetweenAddresses = true
            return [.close(.none)] + connect(at: now)
        case (_, .addressesFound(let count)):
            addresses = max(1, count)
            if case .connecting(let deadline, let joinSent) = state {
                state = .connecting(deadline: min(deadline, attemptedAt + attemptTimeout), joinSent: joinSent)
            }
            return []
        case (.connecting, .wanted)
        where now - attemptedAt >= (isWantedAttempt ? Self.wantedAttemptIsOld : Self.attemptIsOld):
            failures = 0
            return [.close(.none)] + connect(forSomebody: true, at: now)
        case (.waiting(let until, _), .deadline):
            return now >= until ? connect(at: now) : []
        case (.connecting(let deadline, _), .deadline):
            guard now >= deadline else { return [] }
            return lose(.unreachable("no answer within \((now - attemptedAt).components.seconds) s"), at: now)
        case (.joining(let deadline), .deadline):
            return now >= deadline ? lose(.lost("no answer to the join"), at: now) : []
        case (.connecting, .connectionEnded(let error)), (.joining, .connectionEnded(let error)),
            (.ready, .connectionEnded(let error)):
            return lose(error, at: now)
        case (.connecting, .violation(let what)), (.joining, .violation(let what)), (.ready, .violation(let what)):
            return lose(.protocolViolation(what), closing: .protocolViolation, at: now)
        case (.joining, .connected), (.ready, .connected), (.ready, .deadline), (.ready, .welcomed),
            (.ready, .refused), (.ready, .sentOn), (.connecting, .sentOn), (.connecting, .welcomed),
            (.connecting, .refused), (_, .earlyDataOffered),
            (_, .joinLost),
            (_, .networkChanged), (_, .relayFound), (_, .wanted),
            (.waiting, _):
            return []
        }
    }

    /// What was tried before says nothing of what is tried from now on.
    private mutating func forgetFailures() { (failures, unanswered) = (0, 0) }

    private mutating func connect(forSomebody isWanted: Bool = false, at now: Instant) -> [Action] {
        isWantedAttempt = isWanted
        state = .connecting(deadline: now + attemptTimeout, joinSent: false)
        attemptedAt = now
        isRefused = false
        defer { isBetweenAddresses = false }
        return isBetweenAddresses ? [.connect] : [.tell(.connecting), .connect]
    }

    /// How long an attempt may take: not long while another address may be the one that answers. The time doubles with every third round of
    /// the addresses, so that a slow network is given what it needs.
    private var attemptTimeout: Duration {
        if hasOtherPlaces { return Self.connectTimeoutOfSeveral }
        guard addresses > 1 else { return Self.connectTimeout }
        return min(Self.connectTimeout, Self.connectTimeoutOfSeveral * (1 << min(unanswered / (3 * addresses), 8)))
    }

    /// Failures before the waits grow: where there are several addresses, each has had two turns.
    private var failuresEach: Int { addresses > 1 ? 2 * addresses : 1 }

    private mutating func refused(_ refusal: ServerMessage.JoinRefused, at now: Instant) -> [Action] {
        let phrase = refusal.phrase.isEmpty ? "\(refusal.cause)" : refusal.phrase
        let error: RelayLinkError =
            switch refusal.cause {
            case .unsupportedVersion: .versionMismatch(phrase)
            case .notInvited, .revoked: .invitationRefused(phrase)
            case .channelFull: .full(phrase)
            case .relayBusy: .busy(phrase)
            case .other: .closedByRelay(phrase)
            }
        guard refusal.cause.isTemporary else { return halt(error, closing: .joinRefused) }
        // Who has been told a time keeps to it, whoever speaks.
        defer { isRefused = error.isRefusal || refusal.retryAfter > .zero }
        return lose(error, closing: .joinRefused, atLeast: min(refusal.retryAfter, Self.retryAfterMaximum), at: now)
    }

    private mutating func halt(_ error: RelayLinkError, closing code: RelayCloseCode) -> [Action] {
        let lost: [Action] = state == .ready ? [.linkLost] : []
        state = .halted
        return lost + [.close(code), .tell(.unavailable(error, retryAfter: nil))]
    }

    /// Whether another address has its turn before there is a wait: nobody was reached, or the relay that was reached has gone. One that
    /// answers, and ends the link at once, is not asked again at once.
    private func hasNextTurn(after error: RelayLinkError, at now: Instant) -> Bool {
        guard (failures + 1) % addresses != 0 else { return false }
        switch error {
        case .unreachable: return true
        case .lost, .goesDown: return isReady && now - attemptedAt >= .milliseconds(Self.backoffMilliseconds[0])
        default: return false
        }
    }

    private mutating func lose(
        _ error: RelayLinkError, closing code: RelayCloseCode = .none, atLeast minimum: Duration = .zero,
        at now: Instant
    ) -> [Action] {
        if error == .replaced, let abandonedAt, now - abandonedAt < Self.joinMayArrive {
            // By this machine itself.
            self.abandonedAt = nil
            return lose(.lost("an earlier attempt replaced it"), closing: code, atLeast: minimum, at: now)
        }
        // Only the relay's own word halts a link; anyone on the path can make a handshake fail.
        switch error {
        case .invitationRefused, .channelEnded: return halt(error, closing: code)
        default: break
        }
        isRefused = error.isRefusal
        let lost: [Action] = state == .ready ? [.linkLost] : []
        let longest = Self.backoffMilliseconds.count - 1
        // Trying again at once would make two machines with one key fight, or hammer a relay that is not ours.
        let isFirm =
            switch error {
            case .replaced, .wrongRelayKey: true
            default: false
            }
        let failuresMaximum = longest * failuresEach
        if isFirm { failures = failuresMaximum }
        let backoff = Duration.milliseconds(Self.backoffMilliseconds[min(failures / failuresEach, longest)])
        let isNextTurn = hasNextTurn(after: error, at: now)
        let wait = isNextTurn ? minimum : max(minimum, backoff)
        // A closed port is no news before each address had its turn; silence is, for it takes its time.
        if case .connecting = state {
            unanswered += 1
            isBetweenAddresses = isNextTurn && now - attemptedAt < Self.refusalTime
        }
        timesSentOn = 0
        // Beyond the longest wait, still one wait for each round of the addresses.
        failures = failures + 1 < failuresMaximum + addresses ? failures + 1 : failuresMaximum
        state = seededFault("a-lost-link-is-not-made-again") ? .halted : .waiting(until: now + wait, isFirm: isFirm)
        return lost + [.close(code)] + (isBetweenAddresses ? [] : [.tell(.unavailable(error, retryAfter: wait))])
    }
}
