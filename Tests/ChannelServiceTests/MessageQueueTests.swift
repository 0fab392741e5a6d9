// Messages that come while another one plays: played whole, in order, within bounds.

import Audio
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct MessageQueueTests {
    typealias Action = ReceptionAction
    let ann = PTParticipant(name: "Ann", image: nil)
    let bob = PTParticipant(name: "Bob", image: nil)
    let now = Instant.zero

    /// The packet of 20 ms at this place of the burst that begins at sequence number `first`.
    func packet(_ place: Int, of first: UInt16 = 0) -> ReceivedFrame {
        ReceivedFrame(
            sequence: first &+ UInt16(place), timestamp: UInt32(place * 960), marker: place == 0, payload: [0xF8],
            receivedAt: now)
    }

    /// Ann's burst has been handed over and is being played out.
    func draining() -> ReceptionStateMachine {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        _ = reception.handle(.packet(packet(0, of: 500)), at: now)
        _ = reception.handle(.ended(lastSequence: nil), at: now)
        return reception
    }

    @Test func `the next message waits until the one before was heard`() {
        var reception = draining()
        #expect(reception.handle(.began(bob), at: now).isEmpty)
        #expect(reception.handle(.packet(packet(0)), at: now).isEmpty)
        #expect(reception.handle(.packet(packet(1)), at: now).isEmpty)
        #expect(reception.burstsQueued == 1)
        #expect(
            reception.handle(.played(), at: now) == [.setParticipant(bob), .play(packet(0)), .play(packet(1))])
        // It has been caught up with, and goes on live.
        #expect(reception.handle(.packet(packet(2)), at: now) == [.play(packet(2))])
        #expect(reception.handle(.ended(lastSequence: 2), at: now) == [.endPlayback(lastSequence: 2)])
        #expect(reception.handle(.played(), at: now) == [.setParticipant(nil)])
        #expect(reception.packetsDropped == 0)
        #expect(reception.nextDeadline == nil)
    }

    @Test func `a message of which the end was not told ends when the next begins`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        _ = reception.handle(.packet(packet(3)), at: now)
        #expect(reception.handle(.began(bob), at: now) == [.endPlayback(lastSequence: 3)])
        #expect(reception.handle(.played(), at: now) == [.setParticipant(bob)])
        // Nothing had come of this one, so nothing is waited for.
        #expect(reception.handle(.began(ann), at: now) == [.setParticipant(nil), .setParticipant(ann)])
    }

    @Test func `messages that ended while they waited are played one after the other`() {
        var reception = draining()
        for place in 0..<3 {
            let first = UInt16(1_000 * (place + 1))
            _ = reception.handle(.began(place.isMultiple(of: 2) ? bob : ann), at: now)
            _ = reception.handle(.packet(packet(0, of: first)), at: now)
            #expect(reception.handle(.ended(lastSequence: first), at: now).isEmpty)
        }
        for first: UInt16 in [1_000, 2_000, 3_000] {
            let speaker = first == 2_000 ? ann : bob
            #expect(
                reception.handle(.played(), at: now) == [
                    .setParticipant(speaker), .play(packet(0, of: first)), .endPlayback(lastSequence: first),
                ])
        }
        #expect(reception.handle(.played(), at: now) == [.setParticipant(nil)])
    }

    @Test func `a long message is handed over at the pace of its playing`() {
        var reception = draining()
        _ = reception.handle(.began(bob), at: now)
        let count = 200
        for place in 0..<count { _ = reception.handle(.packet(packet(place)), at: now) }
        _ = reception.handle(.ended(lastSequence: nil), at: now)
        let start = now + .seconds(1)
        var played = reception.handle(.played(), at: start).compactMap(\.packet)
        // What the lead has room for at once: 1.5 s and the packet that begins then.
        #expect(played.count == 76)
        var time = start
        var last: [Action] = []
        while let deadline = reception.nextDeadline, played.count < count {
            #expect(deadline > time)
            time = deadline
            last = reception.handle(.deadlineReached, at: time)
            played += last.compactMap(\.packet)
            let ahead = Duration.milliseconds(20 * played.count) - (time - start)
            #expect(ahead <= ReceivedBurst.lead + .milliseconds(20))
        }
        #expect(played.map(\.sequence) == (0..<count).map { packet($0).sequence })
        #expect(last.last == .endPlayback(lastSequence: UInt16(count - 1)))
        #expect(reception.handle(.played(), at: time) == [.setParticipant(nil)])
    }

    @Test func `what finds no place is dropped and counted`() {
        var reception = draining()
        for _ in 0..<ReceptionStateMachine.burstsQueuedMax {
            _ = reception.handle(.began(bob), at: now)
            _ = reception.handle(.packet(packet(0)), at: now)
            _ = reception.handle(.ended(lastSequence: nil), at: now)
        }
        _ = reception.handle(.began(ann), at: now)
        _ = reception.handle(.packet(packet(0)), at: now)
        _ = reception.handle(.ended(lastSequence: nil), at: now)
        #expect(reception.burstsQueued == ReceptionStateMachine.burstsQueuedMax)
        #expect(reception.packetsDropped == 1)

        var long = draining()
        _ = long.handle(.began(bob), at: now)
        for place in 0..<(ReceptionStateMachine.packetsQueuedMax + 7) {
            _ = long.handle(.packet(packet(place)), at: now)
        }
        #expect(long.packetsDropped == 7)
    }

    @Test func `leaving forgets what waits`() {
        var reception = draining()
        _ = reception.handle(.began(bob), at: now)
        _ = reception.handle(.packet(packet(0)), at: now)
        #expect(reception.handle(.cleared, at: now) == [.dropPlayback()])
        #expect(reception.burstsQueued == 0)
        #expect(reception.packetsDropped == 1)
        #expect(reception.nextDeadline == nil)
        #expect(reception.handle(.played(), at: now).isEmpty)
    }

    @Test func `timestamps that lie do not hold a message up`() {
        var reception = draining()
        _ = reception.handle(.began(bob), at: now)
        for place in 0..<100 {
            var packet = packet(place)
            packet.timestamp = place.isMultiple(of: 2) ? 0 : .max / 2
            _ = reception.handle(.packet(packet), at: now)
        }
        _ = reception.handle(.ended(lastSequence: nil), at: now)
        _ = reception.handle(.played(), at: now)
        var time = now
        while let deadline = reception.nextDeadline {
            time = max(time, deadline)
            if reception.handle(.deadlineReached, at: time).contains(.setParticipant(nil)) { break }
        }
        // At most the longest packet's length for each.
        #expect(time <= now + .milliseconds(120 * 100) + ReceptionStateMachine.drainLimit)
        #expect(reception.nextDeadline == nil)
    }

    @Test func `random messages are all shown and played in order`() {
        var generator = SeededGenerator()
        for _ in 0..<200 {
            var reception = ReceptionStateMachine()
            var time = now
            var begun = 0
            var shown: [String] = []
            var sent: [[ReceivedFrame]] = []
            var played: [[ReceivedFrame]] = []
            var isOpen = false
            var isEndDue = false
            func take(_ actions: [Action]) {
                for action in actions {
                    switch action {
                    case .setParticipant(let participant?):
                        shown.append(participant.name)
                        played.append([])
                    case .play(let packet, _): if !played.isEmpty { played[played.count - 1].append(packet) }
                    case .endPlayback: isEndDue = true
                    case .setParticipant(nil), .dropPlayback: break
                    }
                }
            }
            for _ in 0..<150 {
                time = time + .milliseconds(Int.random(in: 0...40, using: &generator))
                if let deadline = reception.nextDeadline, deadline <= time {
                    take(reception.handle(.deadlineReached, at: time))
                }
                switch Int.random(in: 0..<10, using: &generator) {
                case 0 where !isOpen && reception.burstsQueued < ReceptionStateMachine.burstsQueuedMax:
                    begun += 1
                    isOpen = true
                    sent.append([])
                    take(reception.handle(.began(PTParticipant(name: "\(begun)", image: nil)), at: time))
                case 1 where isOpen && sent.last?.isEmpty == false:
                    isOpen = false
                    take(reception.handle(.ended(lastSequence: nil), at: time))
                case 2 where isEndDue:
                    isEndDue = false
                    take(reception.handle(.played(), at: time))
                case 3... where isOpen:
                    let packet = packet(sent[begun - 1].count, of: UInt16(begun * 2_000))
                    sent[begun - 1].append(packet)
                    take(reception.handle(.packet(packet), at: time))
                default: break
                }
            }
            if isOpen { take(reception.handle(.ended(lastSequence: nil), at: time)) }
            while let deadline = reception.nextDeadline {
                time = max(time, deadline)
                take(reception.handle(isEndDue ? .played() : .deadlineReached, at: time))
                isEndDue = false
            }
            #expect(shown == (0..<begun).map { "\($0 + 1)" })
            #expect(played.map { $0.map(\.sequence) } == sent.map { $0.map(\.sequence) })
            #expect(reception.packetsDropped == 0)
        }
    }
}

extension ReceptionAction {
    fileprivate var packet: ReceivedFrame? {
        if case .play(let packet, _) = self { packet } else { nil }
    }
}
