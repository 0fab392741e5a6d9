// What a member knows of the floor when it is refused: who talks, and that it is sent what that one says.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct FloorKnowledgeTests {
    /// A channel, and for each member what it was told and whether media go to it.
    private struct World {
        let channel: RelayChannelConfiguration
        var core: RelayCore
        var now = Instant(nanoseconds: 1_000_000_000)
        var random: SeededGenerator
        /// By connection: its own source, and whose the floor is by what it was told.
        var known: [ConnectionID: (own: ServerMessage.Welcome, floors: [SSRC: UInt64])] = [:]
        var listening: Set<ConnectionID> = []
        var denials = 0
        var emptyHanded = 0
        private var last: UInt64 = 0
        private var requests: [ConnectionID: (number: UInt32, keyID: UInt64, sequence: UInt16)] = [:]

        init(_ rules: FloorRules, seed: UInt64) {
            channel = .yard(rules)
            var limits = RelayLimits()
            limits.messageBurst = 1_000_000
            limits.mediaBurst = 1_000_000
            core = RelayCore(channels: [channel], limits: limits, random: SeededGenerator(seed: seed))
            random = SeededGenerator(seed: seed)
        }

        mutating func take(_ actions: [RelayCore.Action]) {
            for action in actions {
                switch action {
                case .send(let message, let recipients): for id in recipients { hear(message, on: id) }
                case .startMedia(let id, _, _, _): listening.insert(id)
                case .stopMedia(let id, _): listening.remove(id)
                case .close(let id, _, _): (known[id], requests[id]) = (nil, nil)
                default: break
                }
            }
        }

        private mutating func hear(_ message: ServerMessage, on id: ConnectionID) {
            switch message {
            case .welcome(let welcome):
                known[id] = (welcome, [:])
                for taken in (welcome.floor.map { [$0] } ?? []) + welcome.moreFloors {
                    known[id]?.floors[taken.ssrc] = taken.keyID
                }
            case .floorTaken(let taken): known[id]?.floors[taken.ssrc] = taken.keyID
            case .floorIdle(let idle): known[id]?.floors[idle.ssrc] = nil
            case .floorDeny(let denial) where denial.cause == .anotherClientHasPermission:
                denials += 1
                // Who waits for the end of its own burst is refused for that one.
                let isOwn = core.channels[0].floor.holders.allSatisfy { $0.ssrc == known[id]?.own.ssrc }
                if known[id]?.floors.isEmpty != false, !isOwn { emptyHanded += 1 }
            default: break
            }
        }

        mutating func handle(_ event: RelayCore.Event) { take(core.handle(event, at: now)) }

        mutating func join(_ member: UInt8) -> ConnectionID {
            last += 1
            let id = ConnectionID(number: last)
            handle(.connected(id, .numbered(member)))
            handle(.message(id, channel.joinMessage("Member \(member)")))
            return id
        }

        mutating func ask(_ id: ConnectionID, priority: UInt8 = 0) {
            let number = (requests[id]?.number ?? 0) + 1
            let epoch = core.channels[0].keys.present.epoch
            let keyID = UInt64(epoch) << 48 | id.number << 24 | UInt64(number)
            requests[id] = (number, keyID, requests[id]?.sequence ?? 0)
            handle(
                .message(
                    id,
                    .floorRequest(
                        .init(
                            requestID: FloorRequestID(rawValue: number), priority: priority, keyID: keyID,
                            mayQueue: true))))
        }

        mutating func release(_ id: ConnectionID) {
            guard let request = requests[id] else { return }
            let release = ClientMessage.FloorRelease(
                requestID: FloorRequestID(rawValue: request.number), lastSequence: request.sequence)
            handle(.message(id, .floorRelease(release)))
        }

        mutating func talk(_ id: ConnectionID) {
            guard let request = requests[id], let welcome = known[id]?.own else { return }
            let sequence = request.sequence &+ 1
            requests[id]?.sequence = sequence
            let header = MediaPacketHeader(
                ssrc: welcome.ssrc, sequence: sequence, marker: true, keyID: request.keyID)
            take(core.media(header, bytes: [UInt8](repeating: 0, count: 40), from: id, at: now).1)
        }

        mutating func pass(_ time: Duration) {
            now = now + time
            for _ in 0..<32 {
                guard let due = core.nextDeadline, due <= now else { return }
                handle(.deadline)
            }
        }

        /// The members whose knowledge of the floor is not what it is; a talker knows of itself otherwise.
        var mistaken: [ConnectionID] {
            let holders = core.channels[0].floor.holders
            return known.filter { _, knowledge in
                let others = holders.filter { $0.ssrc != knowledge.own.ssrc }.map { ($0.ssrc, $0.keyID) }
                return knowledge.floors.filter { $0.key != knowledge.own.ssrc }
                    != Dictionary(uniqueKeysWithValues: others)
            }.map(\.key)
        }
    }

    @Test(arguments: FloorRules.Mode.allCases.filter { $0 != .listenOnly }, [false, true])
    func `whoever is refused knows who talks, however the floor came to that`(mode: FloorRules.Mode, hasQueue: Bool) {
        let seed = SeededGenerator.seed()
        var world = World(FloorRules(mode: mode, hasQueue: hasQueue, preemptionStep: 10), seed: seed)
        var ids = (0..<7).map { world.join(UInt8($0)) }
        for step in 0..<4_000 {
            let member = Int.random(in: 0..<ids.count, using: &world.random)
            switch Int.random(in: 0..<100, using: &world.random) {
            case 0..<30: world.ask(ids[member], priority: world.random.chance(5) ? 255 : 0)
            case 30..<70: for id in ids { world.talk(id) }
            case 70..<80: world.release(ids[member])
            case 80..<96: world.pass(.milliseconds(Int.random(in: 1...700, using: &world.random)))
            case 96: ids[member] = world.join(UInt8(member))
            case 97: world.handle(.renewMediaKey(world.channel.id))
            case 98:
                world.handle(.disconnected(ids[member]))
                world.known[ids[member]] = nil
                ids[member] = world.join(UInt8(member))
            default: world.pass(.seconds(6))
            }
            let mistaken = world.mistaken
            guard mistaken.isEmpty else {
                return #expect(Bool(false), "\(mistaken) after \(step) steps, seed \(seed)")
            }
        }
        // Nobody is told that somebody talks without knowing who.
        #expect(world.emptyHanded == 0, "seed \(seed)")
        if mode != .cutIn { #expect(world.denials > 0 || hasQueue, "seed \(seed)") }
    }

    @Test func `a relay that goes down refuses, and an emergency that goes on is heard on`() {
        var world = World(FloorRules(), seed: 1)
        let (ann, bob) = (world.join(1), world.join(2))
        world.ask(ann, priority: 255)
        world.talk(ann)
        world.handle(.drain(to: nil))
        world.ask(bob)
        #expect(world.mistaken.isEmpty)
        #expect(world.known[bob]?.floors.count == 1 && world.listening.contains(bob))
        world.talk(ann)
        #expect(world.core.counters.packetsForwarded == 2)
    }

    @Test func `who asks is there: it is sent what the other one says, though it had not reported`() {
        var world = World(FloorRules(), seed: 1)
        let (ann, bob) = (world.join(1), world.join(2))
        world.ask(ann)
        for _ in 0..<120 {
            world.talk(ann)
            world.pass(.milliseconds(100))
        }
        #expect(!world.listening.contains(bob), "nobody seems to listen there")
        world.ask(bob)
        #expect(world.denials == 1)
        #expect(world.listening.contains(bob) && world.listening.contains(ann))
        for _ in 0..<90 {
            world.talk(ann)
            world.pass(.milliseconds(100))
        }
        #expect(world.listening.contains(bob), "for as long as after a report")
    }
}
