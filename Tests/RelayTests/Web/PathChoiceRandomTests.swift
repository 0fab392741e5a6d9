// The choice of the path on networks that open, close, drop and delay as a seed says.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

/// A client's connections, the networks under them, and a relay that knows one connection of the member. No sockets, no sleeping.
private struct ChoiceWorld {
    enum Happening {
        case choice(PathChoiceStateMachine.Event, attempt: Int)
        case deadline
        /// The relay reads a join.
        case joined(LinkKind, attempt: Int)
        case connect
        case network(LinkKind, isOpen: Bool)
        case talk(Bool)
    }

    var random: SeededGenerator
    var choice = PathChoiceStateMachine()
    var now = Instant.zero + .seconds(100)
    var queue: [(at: Instant, order: Int, what: Happening)] = []
    var order = 0
    var isOpen: [LinkKind: Bool] = [.quic: true, .tls: true]
    /// The attempt's number of each connection that exists at the client.
    var connections: [LinkKind: Int] = [:]
    /// Those that the relay has let in, as far as the client can know.
    var joinedSince: [LinkKind: Instant] = [:]
    var attempts = 0
    var isQuiet = true
    var isReady = false
    var lostReadiness = Instant.zero
    var failures: [String] = []
    var moves = 0
    var fails = 0

    init(_ seed: UInt64) { random = SeededGenerator(seed: seed) }

    mutating func at(_ time: Instant, _ what: Happening) {
        order += 1
        queue.append((time, order, what))
    }

    mutating func delay() -> Duration { .milliseconds(Int64.random(in: 5...400, using: &random)) }

    mutating func tell(_ event: PathChoiceStateMachine.Event) {
        for action in choice.handle(event, at: now) { carryOut(action) }
        if choice.wantsQuiet, case .quiet = event {
        } else if choice.wantsQuiet {
            for action in choice.handle(.quiet(isQuiet), at: now) { carryOut(action) }
        }
        if let due = choice.nextDeadline { at(max(due, now), .deadline) }
    }

    mutating func carryOut(_ action: PathChoiceStateMachine.Action) {
        switch action {
        case .open(let kind):
            expect(connections[kind] == nil, "\(kind) is opened twice")
            attempts += 1
            let number = attempts
            connections[kind] = number
            if isOpen[kind] == true {
                at(now + delay() + delay(), .choice(.ready(kind), attempt: number))
            } else {
                at(now + .seconds(9), .choice(.ended(kind, .unreachable("no answer"), isSilent: true), attempt: number))
            }
        case .close(let kind): drop(kind)
        case .use(let kind):
            expect(connections[kind] != nil, "\(kind) is used and not there")
            expect(connections.count == 1, "the other one is closed before a join")
            at(now + delay(), .joined(kind, attempt: connections[kind] ?? 0))
            at(
                now + .seconds(5),
                .choice(
                    .ended(kind, .lost("no answer to the join"), isSilent: true), attempt: -(connections[kind] ?? 0)))
        case .join:
            expect(isQuiet, "a move while somebody talks")
            moves += 1
            at(now + delay(), .joined(.quic, attempt: connections[.quic] ?? 0))
        case .moved:
            drop(.tls)
            expect(connections[.quic] != nil, "moved to nothing")
        case .stay: expect(connections[.tls] != nil, "stays on nothing")
        case .fail:
            fails += 1
            for kind in LinkKind.allCases { drop(kind) }
            lose()
            _ = choice.handle(.closed(isSilent: true), at: now)
            at(now + .milliseconds(250), .connect)
        }
        check()
    }

    mutating func drop(_ kind: LinkKind) {
        connections[kind] = nil
        joinedSince[kind] = nil
    }

    mutating func lose() {
        if isReady { lostReadiness = now }
        isReady = false
    }

    mutating func expect(_ isTrue: Bool, _ what: String) { if !isTrue, failures.count < 5 { failures.append(what) } }

    /// Never two joined links for longer than the move, and never outside of it.
    mutating func check() {
        guard joinedSince.count > 1 else { return }
        expect(choice.isMoving, "two joined links outside of a move")
        if let since = joinedSince.values.max() { expect(now - since <= .milliseconds(1_500), "two links for long") }
    }

    mutating func step(_ what: Happening) {
        switch what {
        case .choice(let event, let attempt):
            let kind: LinkKind? =
                switch event {
                case .ready(let kind), .ended(let kind, _, _): kind
                case .welcomed: .quic
                default: nil
                }
            guard let kind else { return tell(event) }
            // A time-out of a join that was answered.
            if attempt < 0 {
                guard connections[kind] == -attempt, joinedSince[kind] == nil, !choice.isMoving else { return }
            } else {
                guard connections[kind] == attempt else { return }
            }
            if case .ready = event, isOpen[kind] == false {
                return at(
                    now + .seconds(9),
                    .choice(.ended(kind, .unreachable("no answer"), isSilent: true), attempt: attempt))
            }
            if case .ended = event { drop(kind) }
            if case .welcomed = event { isReady = true }
            tell(event)
        case .deadline: if let due = choice.nextDeadline, due <= now { tell(.deadline) }
        case .joined(let kind, let attempt):
            guard connections[kind] == attempt, isOpen[kind] == true else { return }
            // The relay closes the older one, which may be heard before or after the Welcome.
            for other in LinkKind.allCases where other != kind {
                if let number = connections[other], joinedSince[other] != nil {
                    at(now + delay(), .choice(.ended(other, .replaced, isSilent: false), attempt: number))
                }
            }
            joinedSince[kind] = now
            if choice.isMoving {
                at(now + delay(), .choice(.welcomed, attempt: attempt))
            } else {
                isReady = true
            }
        case .connect: tell(.connect(hasTLS: true))
        case .network(let kind, let isOpenNow):
            isOpen[kind] = isOpenNow
            if !isOpenNow, let number = connections[kind], joinedSince[kind] != nil {
                // Noticed by somebody who talks or asks, sooner or later.
                at(
                    now + .milliseconds(Int64.random(in: 400...3_000, using: &random)),
                    .choice(.ended(kind, .lost("silence"), isSilent: true), attempt: number))
            }
            if random.chance(30) { tell(.networkChanged) }
        case .talk(let talks):
            isQuiet = !talks
            if choice.wantsQuiet { tell(.quiet(isQuiet)) }
        }
    }

    /// Runs until `end`.
    mutating func run(until end: Instant) {
        while let index = queue.indices.min(by: { (queue[$0].at, queue[$0].order) < (queue[$1].at, queue[$1].order) }),
            queue[index].at <= end
        {
            let next = queue.remove(at: index)
            now = max(now, next.at)
            step(next.what)
            check()
        }
        now = end
    }
}

struct PathChoiceRandomTests {
    @Test func `whatever the networks do, there are never two links for long, and soon one again`() {
        let seed = SeededGenerator.seed()
        var (moves, fails) = (0, 0)
        for round in 0..<300 {
            var world = ChoiceWorld(seed &+ UInt64(round))
            world.at(world.now, .connect)
            let start = world.now
            for _ in 0..<Int.random(in: 5...60, using: &world.random) {
                let time = start + .milliseconds(Int64.random(in: 0...300_000, using: &world.random))
                if world.random.chance(40) {
                    world.at(time, .talk(world.random.chance(50)))
                } else {
                    world.at(
                        time,
                        .network(world.random.chance(50) ? .quic : .tls, isOpen: world.random.chance(50)))
                }
            }
            world.run(until: start + .seconds(301))
            // One of the two works from now on.
            let open: LinkKind = world.random.chance(50) ? .quic : .tls
            world.step(.network(open, isOpen: true))
            world.step(.network(open == .quic ? .tls : .quic, isOpen: false))
            world.step(.talk(false))
            world.run(until: world.now + .seconds(25))
            #expect(world.choice.serving == open && world.isReady, "seed \(seed), round \(round)")
            // And then both, and nobody talks: then it is QUIC.
            world.step(.network(.quic, isOpen: true))
            world.step(.network(.tls, isOpen: true))
            world.run(until: world.now + .seconds(700))
            #expect(world.choice.serving == .quic, "seed \(seed), round \(round)")
            #expect(world.failures.isEmpty, "seed \(seed), round \(round): \(world.failures)")
            (moves, fails) = (moves + world.moves, fails + world.fails)
        }
        #expect(moves > 100 && fails > 100, "the test sees moves (\(moves)) and losses (\(fails))")
        print("\(moves) moves, \(fails) losses")
    }
}

/// A client's rules on a link that moves again and again, and a relay that grants every request.
private struct MovingWorld {
    var random: SeededGenerator
    var core: RelayClientCore
    var now = Instant.zero + .seconds(100)
    /// What the relay answers, when, and to which connection.
    var answers: [(at: Instant, connection: Int, event: RelayClientCore.Event)] = []
    /// The connection that serves, and the one that is joined beside it.
    var connection = 1
    var next: (connection: Int, welcomedAt: Instant?, givenUpAt: Instant)?
    var said: [BurstID: Int] = [:]
    var ended: [BurstID: (TransmissionEnd, TransmissionReport)] = [:]
    var sent = 0
    var moves = 0

    init(_ seed: UInt64) throws {
        random = SeededGenerator(seed: seed)
        let link = try InvitationLink(
            host: "h", port: 1, channelName: DisplayName("c")!, channel: ChannelID(), token: InvitationToken(),
            pin: PublicKeyPin([UInt8](repeating: 0, count: 32))!, web: WebPlace(port: 443))
        core = RelayClientCore(
            invitation: link, displayName: DisplayName("c")!, mode: .member, timestampAtZero: 7,
            random: SeededGenerator(seed: seed))
        core.hasOtherPath = true
        core.isReliable = true
        handle(.join)
        handle(.connected)
        handle(.message(.welcome(Self.welcome(1))))
    }

    static func welcome(_ connection: Int) -> ServerMessage.Welcome {
        .init(
            ssrc: SSRC(rawValue: UInt32(connection)), downlinkKey: TrailerKey(), mediaKey: MediaKey(epoch: 1),
            channelName: DisplayName("c")!, members: [], floor: nil,
            memberID: MemberID(PublicKeyPin([UInt8](repeating: 0, count: 32))!), talkTimeLimit: nil)
    }

    mutating func handle(_ event: RelayClientCore.Event) {
        for action in core.handle(event, at: now) {
            switch action {
            case .send(.floorRequest(let request)):
                answer(.message(.floorGranted(.init(requestID: request.requestID, duration: .seconds(60)))))
            case .send(.floorRelease(let release)):
                answer(
                    .message(
                        .floorIdle(.init(ssrc: SSRC(rawValue: UInt32(connection)), lastSequence: release.lastSequence)))
                )
            case .sendMedia(let packet):
                sent += 1
                handle(.mediaSent(UInt64(sent), packet))
                answer(.mediaAcknowledged(UInt64(sent)))
            case .tell(.transmissionEnded(let id, let end, let report)): ended[id] = (end, report)
            default: break
            }
        }
    }

    mutating func answer(_ event: RelayClientCore.Event) {
        answers.append((now + .milliseconds(Int64.random(in: 5...120, using: &random)), connection, event))
    }

    /// Lets `pause` pass, in steps of 5 ms.
    mutating func wait(_ pause: Duration) {
        let end = now + pause
        while now < end {
            now = now + .milliseconds(5)
            while let index = answers.firstIndex(where: { $0.at <= now }) {
                let due = answers.remove(at: index)
                if due.connection == connection { handle(due.event) }
            }
            if let due = core.nextDeadline, due <= now { handle(.deadline) }
            move()
        }
    }

    mutating func move() {
        if let next {
            if let at = next.welcomedAt, at <= now {
                self.next = nil
                connection = next.connection
                moves += 1
                core.isReliable = random.chance(50)
                handle(.moved(.welcome(Self.welcome(connection))))
            } else if next.givenUpAt <= now {
                self.next = nil
                handle(.moveEnded)
            }
        } else if core.isQuiet, random.chance(20) {
            let succeeds = random.chance(80)
            next = (
                connection + 1 + Int.random(in: 0...3, using: &random),
                succeeds ? now + .milliseconds(Int64.random(in: 1...600, using: &random)) : nil,
                now + .milliseconds(1_500)
            )
            handle(.moveBegan)
        }
    }
}

struct MovingLinkRandomTests {
    @Test func `however often the link moves, no frame is lost, and no press`() throws {
        let seed = SeededGenerator.seed()
        var moves = 0
        for round in 0..<40 {
            var world = try MovingWorld(seed &+ UInt64(round))
            for number in 1...30 {
                world.wait(.milliseconds(Int64.random(in: 0...800, using: &world.random)))
                let id = BurstID(number: UInt32(number))
                let frames = Int.random(in: 1...60, using: &world.random)
                world.said[id] = frames
                world.handle(.begin(id, priority: 0))
                for frame in 0..<frames {
                    world.handle(
                        .frame(OutgoingFrame(payload: [UInt8(frame), 1, 2], samples: 960, capturedAt: world.now)))
                    world.wait(.milliseconds(20))
                }
                world.handle(.end)
            }
            world.wait(.seconds(10))
            for (id, frames) in world.said {
                let (end, report) = try #require(world.ended[id], "seed \(seed), round \(round): \(id)")
                #expect(
                    end == .completed && report.sent == frames && report.erased == 0 && report.dropped == 0,
                    "seed \(seed), round \(round), \(id): \(end), \(report.sent) of \(frames)")
            }
            #expect(world.core.isReady)
            moves += world.moves
        }
        #expect(moves > 100, "the test sees moves (\(moves))")
        print("\(moves) moves between and beside 1200 bursts")
    }
}
