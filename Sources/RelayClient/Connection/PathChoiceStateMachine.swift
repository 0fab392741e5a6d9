// Which connection carries the link: QUIC, or TLS where UDP is blocked. Pure rules (docs/relay-protocol.md, section 21.5).
import MonotonicTime

/// The connections of one link: which are tried, which one is used, and when the link moves from TLS back to QUIC.
///
/// QUIC is tried first, and TLS in parallel when QUIC takes long. The first that is ready is used, and the other one is
/// closed. On TLS, QUIC is tried again from time to time. When it is ready, and nobody talks, the link joins there while
/// the connection over TLS still serves, and moves when it is let in. A relay that names another one is left for that
/// one. Where the relay has no place for TLS, everything is as with QUIC alone: each event leads to the same action at
/// once.
struct PathChoiceStateMachine: Sendable {
    /// What may happen.
    enum Event: Sendable, Equatable {
        /// The link wants a connection; whether there is a place for TLS.
        case connect(hasTLS: Bool)
        /// The link wants no connection any more; `isSilent`: because nothing is heard. All are closed.
        case closed(isSilent: Bool)
        /// A handshake is complete.
        case ready(LinkKind)
        /// A connection failed, or was lost; `isSilent`: nothing was heard.
        case ended(LinkKind, RelayLinkError, isSilent: Bool)
        /// The host says that nobody has the relay's UDP port.
        case refused
        /// The relay let the link in over QUIC, after `join`.
        case welcomed
        /// The relay that was reached over QUIC, after `join`, does not serve the channel, and has named the one that does.
        case sentOn
        /// Whether nobody talks, and no press is under way.
        case quiet(Bool)
        /// This machine's network has changed.
        case networkChanged
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    enum Action: Sendable, Equatable {
        /// Begin a connection.
        case open(LinkKind)
        /// Close a connection; nothing of it counts any more.
        case close(LinkKind)
        /// This connection is the link's: it is ready for the join.
        case use(LinkKind)
        /// Join on the connection over QUIC too. The one over TLS serves on.
        case join
        /// The connection over QUIC serves; the one over TLS is not needed.
        case moved
        /// The move has failed: the connection over TLS serves on.
        case stay
        /// The link has no connection, and none is tried any more.
        case fail(RelayLinkError)
    }

    /// How long things take.
    struct Times: Sendable, Equatable {
        /// How long QUIC may take before TLS is tried as well.
        var headStart: Duration = .milliseconds(1_500)
        /// On TLS, the first pause before QUIC is tried again. It doubles…
        var firstPause: Duration = .seconds(30)
        /// …up to this.
        var longestPause: Duration = .seconds(600)
        /// How long such a try may take.
        var tryTimeout: Duration = .seconds(10)
        /// How long a connection that is ready waits for a moment when nobody talks. A relay closes one without a join.
        var standingTimeout: Duration = .seconds(5)
        /// How long the move may take; less than a press waits for the link.
        var moveTimeout: Duration = .milliseconds(1_500)
        /// When TLS has failed, how long an attempt goes on with QUIC alone.
        var answerTimeout: Duration = .seconds(5)
        /// A join of a move that was given up arrives within this time, if it does.
        var joinMayArrive: Duration = .seconds(10)
        /// Changes of the network lead to no more tries than one in this time.
        var changeInterval: Duration = .seconds(5)
    }

    private enum Candidate: Sendable, Equatable {
        case unavailable
        case later(Instant)
        case trying
        case failed(RelayLinkError)

        var isTrying: Bool { self == .trying }
    }

    private struct Race: Sendable, Equatable {
        var quic: Candidate
        var tls: Candidate
        var givesUpAt: Instant?
    }

    /// On TLS: how it is with QUIC.
    private enum Return: Sendable, Equatable {
        case never
        case waiting(until: Instant)
        case trying(until: Instant)
        case standing(until: Instant)
        /// `ended`: why the connection over TLS has ended meanwhile.
        case moving(until: Instant, ended: RelayLinkError?)

        var isMoving: Bool {
            if case .moving = self { true } else { false }
        }
    }

    private enum State: Sendable, Equatable {
        case idle
        case racing(Race)
        case onQUIC
        case onTLS(Return)
    }

    private var state = State.idle
    private let wish: RelayNetwork.Transport
    /// The last connection over QUIC ended in silence, or never came about: this network may let no UDP through.
    private(set) var isQUICSilent = false
    private let times: Times
    private var pause: Duration
    private var triedAt: Instant?
    private var isQuiet = false
    private var gaveUpMoveAt: Instant?
    /// How often relays have named others since QUIC was last tried after a pause.
    private var timesSentOn = 0
    /// Whether the relay has a place for TLS, as far as is known.
    var hasTLS = false

    init(_ wish: RelayNetwork.Transport = .automatic, times: Times = Times()) {
        (self.wish, self.times, pause) = (wish, times, times.firstPause)
    }

    /// Which connection serves the link; nil: none.
    var serving: LinkKind? {
        switch state {
        case .onQUIC: .quic
        case .onTLS(.moving(_, .some)): nil
        case .onTLS: .tls
        case .idle, .racing: nil
        }
    }

    /// Whether the link is joined, or is about to be, on two connections.
    var isMoving: Bool {
        if case .onTLS(let back) = state { back.isMoving } else { false }
    }

    /// Whether connections are tried, and none serves.
    var isRacing: Bool {
        if case .racing = state { true } else { false }
    }

    /// Whether QUIC is among what is tried, and none serves.
    var isTryingQUIC: Bool {
        if case .racing(let race) = state { race.quic.isTrying } else { false }
    }

    /// Whether `.quiet` changes anything.
    var wantsQuiet: Bool {
        switch state {
        case .onTLS(.never), .onQUIC, .idle, .racing: false
        case .onTLS: true
        }
    }

    /// Whether there are two ways to the relay, so that one that is silent is worth leaving.
    var hasAlternative: Bool { hasTLS && wish == .automatic }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    var nextDeadline: Instant? {
        switch state {
        case .idle, .onQUIC, .onTLS(.never): return nil
        case .racing(let race):
            if case .later(let at) = race.tls { return at }
            return race.givesUpAt
        case .onTLS(.waiting(let until)): return isQuiet ? until : nil
        case .onTLS(.trying(let until)), .onTLS(.standing(let until)), .onTLS(.moving(let until, _)): return until
        }
    }

    /// Takes an event and says what is to be done.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch (state, event) {
        case (_, .connect(let hasTLS)): return connect(hasTLS, at: now)
        case (let before, .closed(let isSilent)):
            // Whoever gives up an attempt has heard nothing on it.
            if case .racing(let race) = before, race.quic.isTrying { isQUICSilent = true }
            if before == .onQUIC { isQUICSilent = isSilent }
            state = .idle
            return []
        case (_, .quiet(let isQuiet)):
            self.isQuiet = isQuiet
            return isQuiet ? proceed(at: now) : []
        case (_, .networkChanged): return networkChanged(at: now)
        case (.racing(let race), .ready(let kind)): return ready(kind, race, at: now)
        case (.racing(let race), .ended(let kind, let error, let isSilent)):
            return ended(kind, error, isSilent: isSilent, race, at: now)
        case (.racing(let race), .refused):
            guard case .later = race.tls else { return [] }
            return beginTLS(race)
        case (.racing(let race), .deadline): return raceDeadline(race, at: now)
        case (.onQUIC, .ended(.quic, let error, let isSilent)):
            state = .idle
            isQUICSilent = isSilent
            return [.fail(error)]
        case (.onTLS(let back), .ended(.tls, let error, _)): return ended(error, back, at: now)
        case (.onTLS(.trying), .ready(.quic)):
            isQUICSilent = false
            guard !isQuiet else { return move(at: now) }
            state = .onTLS(.standing(until: now + times.standingTimeout))
            return []
        case (.onTLS(.trying), .ended(.quic, _, _)), (.onTLS(.standing), .ended(.quic, _, _)):
            return waitLonger(at: now)
        case (.onTLS(.moving(_, let ended)), .ended(.quic, _, _)): return giveUpMove(ended, closing: false, at: now)
        case (.onTLS(.moving), .welcomed):
            settle()
            return [.moved]
        case (.onTLS(.moving(_, let ended)), .sentOn): return sentOn(ended, at: now)
        case (.onTLS, .deadline): return proceed(at: now)
        case (.idle, _), (.onQUIC, _), (.onTLS, _), (.racing, .welcomed), (.racing, .sentOn): return []
        }
    }

    // MARK: From nothing to a connection

    private mutating func connect(_ hasTLS: Bool, at now: Instant) -> [Action] {
        self.hasTLS = hasTLS
        let (withQUIC, withTLS) = (wish != .tls || !hasTLS, hasTLS && wish != .quic)
        let isAtOnce = isQUICSilent || !withQUIC
        let tls: Candidate = !withTLS ? .unavailable : isAtOnce ? .trying : .later(now + times.headStart)
        state = .racing(Race(quic: withQUIC ? .trying : .unavailable, tls: tls))
        return (withQUIC ? [.open(.quic)] : []) + (tls.isTrying ? [.open(.tls)] : [])
    }

    private mutating func ready(_ kind: LinkKind, _ race: Race, at now: Instant) -> [Action] {
        switch kind {
        case .quic:
            guard race.quic.isTrying else { return [] }
            settle()
            return (race.tls.isTrying ? [.close(.tls)] : []) + [.use(.quic)]
        case .tls:
            guard race.tls.isTrying else { return [] }
            isQUICSilent = race.quic != .unavailable
            triedAt = now
            state = .onTLS(race.quic == .unavailable ? .never : .waiting(until: now + pause))
            return (race.quic.isTrying ? [.close(.quic)] : []) + [.use(.tls)]
        }
    }

    private mutating func ended(
        _ kind: LinkKind, _ error: RelayLinkError, isSilent: Bool, _ race: Race, at now: Instant
    ) -> [Action] {
        var race = race
        switch kind {
        case .quic:
            guard race.quic.isTrying else { return [] }
            isQUICSilent = isSilent
            race.quic = .failed(error)
        case .tls:
            guard race.tls.isTrying else { return [] }
            race.tls = .failed(error)
            race.givesUpAt = now + times.answerTimeout
        }
        switch (race.quic, race.tls) {
        case (.failed(let error), .unavailable), (.unavailable, .failed(let error)):
            state = .idle
            return [.fail(error)]
        case (.failed(let quic), .failed(let tls)):
            state = .idle
            return [.fail(Self.both(quic, tls))]
        case (.failed, .later): return beginTLS(race)
        default:
            state = .racing(race)
            return []
        }
    }

    private mutating func beginTLS(_ race: Race) -> [Action] {
        var race = race
        race.tls = .trying
        state = .racing(race)
        return [.open(.tls)]
    }

    private mutating func raceDeadline(_ race: Race, at now: Instant) -> [Action] {
        guard let due = nextDeadline, due <= now else { return [] }
        if case .later = race.tls { return beginTLS(race) }
        guard case .failed(let error) = race.tls else { return [] }
        state = .idle
        isQUICSilent = true
        return [.close(.quic), .fail(Self.both(.unreachable("no answer"), error))]
    }

    /// Both have failed. A relay that answers, but is not the right one, counts more than one that does not.
    private static func both(_ quic: RelayLinkError, _ tls: RelayLinkError) -> RelayLinkError {
        switch (quic, tls) {
        case (.unreachable(let udp), .unreachable(let tcp)): .unreachable("over UDP: \(udp); over TLS: \(tcp)")
        case (.unreachable, _): tls
        default: quic
        }
    }

    // MARK: From TLS back to QUIC

    /// Everything is as it should be: on QUIC.
    private mutating func settle() {
        state = .onQUIC
        isQUICSilent = false
        pause = times.firstPause
    }

    private mutating func proceed(at now: Instant) -> [Action] {
        guard case .onTLS(let back) = state else { return [] }
        switch back {
        case .waiting(let until) where isQuiet && until <= now:
            (triedAt, timesSentOn) = (now, 0)
            return tryQUIC(at: now)
        case .standing where isQuiet: return move(at: now)
        case .trying(let until) where until <= now: return [.close(.quic)] + waitLonger(at: now)
        case .standing(let until) where until <= now:
            // It works, and somebody talks on: soon again.
            state = .onTLS(.waiting(until: now + times.firstPause))
            return [.close(.quic)]
        case .moving(let until, let ended) where until <= now: return giveUpMove(ended, closing: true, at: now)
        case .never, .waiting, .trying, .standing, .moving: return []
        }
    }

    private mutating func tryQUIC(at now: Instant) -> [Action] {
        state = .onTLS(.trying(until: now + times.tryTimeout))
        return [.open(.quic)]
    }

    /// The move goes to another relay. Presses do not wait for that.
    private mutating func sentOn(_ ended: RelayLinkError?, at now: Instant) -> [Action] {
        timesSentOn += 1
        guard ended == nil, timesSentOn <= RelayClientStateMachine.timesSentOnMaximum else {
            return giveUpMove(ended, closing: true, at: now)
        }
        return [.close(.quic), .stay] + tryQUIC(at: now)
    }

    private mutating func move(at now: Instant) -> [Action] {
        state = .onTLS(.moving(until: now + times.moveTimeout, ended: nil))
        return [.join]
    }

    private mutating func waitLonger(at now: Instant) -> [Action] {
        pause = min(pause * 2, times.longestPause)
        state = .onTLS(.waiting(until: now + pause))
        return []
    }

    private mutating func giveUpMove(_ ended: RelayLinkError?, closing: Bool, at now: Instant) -> [Action] {
        gaveUpMoveAt = now
        let close: [Action] = closing ? [.close(.quic)] : []
        guard let ended else { return close + waitLonger(at: now) + [.stay] }
        state = .idle
        return close + [.fail(ended)]
    }

    /// The connection over TLS has ended.
    private mutating func ended(_ error: RelayLinkError, _ back: Return, at now: Instant) -> [Action] {
        let isOwn = back.isMoving || gaveUpMoveAt.map { now - $0 < times.joinMayArrive } ?? false
        let error = error == .replaced && isOwn ? .lost("its own later connection replaced it") : error
        switch back {
        case .moving(let until, nil):
            // The relay closes it when it lets the other one in.
            state = .onTLS(.moving(until: until, ended: error))
            return []
        case .moving: return []
        case .trying, .standing:
            state = .idle
            return [.close(.quic), .fail(error)]
        case .never, .waiting:
            state = .idle
            return [.fail(error)]
        }
    }

    private mutating func networkChanged(at now: Instant) -> [Action] {
        // Another network may let UDP through.
        isQUICSilent = false
        pause = times.firstPause
        guard case .onTLS(.waiting(let until)) = state else { return [] }
        let soonest = triedAt.map { $0 + times.changeInterval } ?? now
        state = .onTLS(.waiting(until: min(until, max(soonest, now))))
        return proceed(at: now)
    }
}
