// When a remote participant counts as speaking.

import Audio
import MonotonicTime
import PushToTalkCore
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct ReceptionStateMachineTests {
    let ann = PTParticipant(name: "Ann", image: nil)
    let bob = PTParticipant(name: "Bob", image: nil)
    let now = Instant.zero

    /// A packet of 20 ms.
    func heard(_ sequence: UInt16) -> ReceivedFrame {
        ReceivedFrame(
            sequence: sequence, timestamp: UInt32(sequence) &* 960, marker: false, payload: [0xF8], receivedAt: now)
    }

    @Test func `a burst ends when it was heard`() {
        var reception = ReceptionStateMachine()
        #expect(reception.handle(.began(ann), at: now) == [.setParticipant(ann)])
        #expect(reception.handle(.packet(heard(7)), at: now) == [.play(heard(7))])
        #expect(reception.handle(.ended(lastSequence: 9), at: now) == [.endPlayback(lastSequence: 9)])
        #expect(reception.handle(.packet(heard(9)), at: now) == [.play(heard(9))])
        #expect(reception.handle(.played(), at: now) == [.setParticipant(nil)])
        #expect(reception.nextDeadline == nil)
    }

    @Test func `an end without a number is that of the newest packet`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        for sequence: UInt16 in [65_534, 1, 65_535, 0] { _ = reception.handle(.packet(heard(sequence)), at: now) }
        #expect(reception.handle(.ended(lastSequence: nil), at: now) == [.endPlayback(lastSequence: 1)])
    }

    @Test func `a burst of which nothing came ends at once`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        #expect(reception.handle(.ended(lastSequence: 5), at: now) == [.setParticipant(nil)])
    }

    @Test func `silence within a burst does not end it`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        _ = reception.handle(.packet(heard(1)), at: now)
        #expect(reception.handle(.played(), at: now).isEmpty)
        #expect(reception.handle(.packet(heard(60)), at: now + .seconds(9)) == [.play(heard(60))])
        #expect(reception.handle(.deadlineReached, at: now + .seconds(10)).isEmpty)
        #expect(reception.nextDeadline == now + .seconds(19))
        #expect(
            reception.handle(.deadlineReached, at: now + .seconds(19)) == [.dropPlayback(), .setParticipant(nil)])
    }

    @Test func `a speaker that never finishes is not waited for`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        _ = reception.handle(.packet(heard(1)), at: now)
        _ = reception.handle(.ended(lastSequence: 1), at: now)
        #expect(reception.nextDeadline == now + .seconds(6))
        #expect(
            reception.handle(.deadlineReached, at: now + .seconds(6)) == [.dropPlayback(), .setParticipant(nil)])
    }

    @Test func `a burst behind an own transmission is heard from its start when that ends`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        #expect(reception.handle(.refused, at: now).isEmpty)
        #expect(reception.handle(.packet(heard(1)), at: now).isEmpty)
        #expect(reception.handle(.transmissionEnded, at: now) == [.setParticipant(ann)])
        #expect(reception.nextDeadline.map { $0 <= now } ?? false)
        #expect(reception.handle(.deadlineReached, at: now) == [.play(heard(1))])
        #expect(reception.handle(.packet(heard(2)), at: now) == [.play(heard(2))])
        #expect(reception.handle(.transmissionEnded, at: now).isEmpty)
        #expect(reception.packetsDropped == 0)
    }

    @Test func `bursts that end behind an own transmission are heard after it`() {
        var reception = ReceptionStateMachine()
        _ = reception.handle(.began(ann), at: now)
        _ = reception.handle(.refused, at: now)
        _ = reception.handle(.packet(heard(3)), at: now)
        #expect(reception.handle(.ended(lastSequence: 3), at: now).isEmpty)
        #expect(reception.nextDeadline == nil)
        #expect(reception.handle(.began(bob), at: now).isEmpty)
        #expect(reception.handle(.packet(heard(9)), at: now).isEmpty)
        let later = now + .seconds(60)
        #expect(reception.handle(.transmissionEnded, at: later) == [.setParticipant(ann)])
        // What waited comes to the speaker as if it came only now.
        var (first, second) = (heard(3), heard(9))
        first.receivedAt = later - .milliseconds(1_500)
        second.receivedAt = first.receivedAt
        #expect(reception.handle(.deadlineReached, at: later) == [.play(first), .endPlayback(lastSequence: 3)])
        #expect(reception.handle(.played(), at: later) == [.setParticipant(bob), .play(second)])
    }

    @Test func `a burst of which nothing came behind an own transmission is forgotten`() {
        var ended = ReceptionStateMachine()
        _ = ended.handle(.began(ann), at: now)
        _ = ended.handle(.refused, at: now)
        #expect(ended.handle(.ended(lastSequence: 3), at: now).isEmpty)
        #expect(ended.handle(.transmissionEnded, at: now).isEmpty)
        var silent = ReceptionStateMachine()
        _ = silent.handle(.began(ann), at: now)
        _ = silent.handle(.refused, at: now)
        #expect(silent.handle(.deadlineReached, at: now + .seconds(10)).isEmpty)
        #expect(silent.nextDeadline == nil)
        #expect(silent.handle(.transmissionEnded, at: now + .seconds(11)).isEmpty)
    }

    @Test func `packets outside of a burst are dropped and counted`() {
        var reception = ReceptionStateMachine()
        #expect(reception.handle(.packet(heard(1)), at: now).isEmpty)
        _ = reception.handle(.began(ann), at: now)
        #expect(reception.handle(.cleared, at: now) == [.dropPlayback()])
        #expect(reception.handle(.packet(heard(2)), at: now).isEmpty)
        #expect(reception.handle(.ended(lastSequence: 2), at: now).isEmpty)
        #expect(reception.handle(.cleared, at: now).isEmpty)
        #expect(reception.packetsDropped == 2)
    }
}
