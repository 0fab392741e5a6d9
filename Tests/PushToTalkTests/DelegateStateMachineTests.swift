// The rules between pttd's calls and the app's delegate, without any bus.
import DBus
import Foundation
import MonotonicTime
import PTTBus
import PushToTalkCore
import TestSupport
import Testing

@testable import PushToTalk

@Suite struct DelegateStateMachineTests {
    private let first = UUID()
    private let second = UUID()

    /// What pttd's rules refuse.
    private func refused(_ code: PTChannelError.Code) -> DelegateStateMachine.Failure {
        DelegateStateMachine.Failure(error: PTChannelError(code), isCalledBack: true)
    }

    private func told(_ actions: [DelegateStateMachine.Action]) -> [DelegateCallback] {
        actions.compactMap { if case .tell(let callback) = $0 { callback } else { nil } }
    }

    @Test func `another channel after a restart leaves the lost one first`() {
        var machine = DelegateStateMachine()
        _ = machine.handle(.called(.didJoinChannel(first, reason: .developerRequest)), at: .zero)
        _ = machine.handle(.daemonGone, at: .zero)
        #expect(
            told(machine.handle(.registered(activeChannel: second), at: .zero)) == [
                .didLeaveChannel(first, reason: .unknown), .didJoinChannel(second, reason: .channelRestoration),
            ])
    }

    @Test func `a channel that is left while it is restored is left once`() {
        var machine = DelegateStateMachine()
        _ = machine.handle(.called(.didJoinChannel(first, reason: .developerRequest)), at: .zero)
        _ = machine.handle(.daemonGone, at: .zero)
        #expect(
            told(machine.handle(.called(.didLeaveChannel(first, reason: .systemPolicy)), at: .zero)) == [
                .didLeaveChannel(first, reason: .systemPolicy)
            ])
        #expect(machine.handle(.registered(activeChannel: nil), at: .zero).isEmpty)
    }

    @Test func `a begin that began and then failed to record is not a failure as well`() {
        var machine = DelegateStateMachine()
        _ = machine.handle(.called(.didJoinChannel(first, reason: .developerRequest)), at: .zero)
        _ = machine.handle(.requested(.begin, first), at: .zero)
        _ = machine.handle(.called(.didBeginTransmitting(first, source: .developerRequest)), at: .zero)
        _ = machine.handle(.called(.didEndTransmitting(first, source: .unknown)), at: .zero)
        #expect(machine.handle(.answered(.begin, first, refused(.unknown)), at: .zero).isEmpty)
    }

    @Test func `the same failure counts as new after its limit`() {
        var machine = DelegateStateMachine()
        let error = PTChannelError(.callActive)
        _ = machine.handle(.requested(.begin, first), at: .zero)
        #expect(told(machine.handle(.answered(.begin, first, refused(.callActive)), at: .zero)).count == 1)
        let later = Instant.zero + DelegateStateMachine.repetitionLimit
        #expect(told(machine.handle(.called(.failedToBeginTransmitting(first, error)), at: later)).count == 1)
    }

    @Test func `after a failure that pttd does not call back about, the next one that it does is told`() {
        let failures: [DBusError] = [
            .remote(name: "org.freedesktop.DBus.Error.UnknownObject", message: "no object"),
            .remote(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "too many calls"),
            .timedOut("RequestBeginTransmitting"), .disconnected,
        ]
        let called = DelegateCallback.failedToBeginTransmitting(first, PTChannelError(.callActive))
        for failure in failures.map({ DelegateStateMachine.Failure($0) }) {
            var machine = DelegateStateMachine()
            _ = machine.handle(.requested(.begin, first), at: .zero)
            #expect(told(machine.handle(.answered(.begin, first, failure), at: .zero)).count == 1)
            _ = machine.handle(.requested(.begin, first), at: .zero)
            _ = machine.handle(.answered(.begin, first, nil), at: .zero)
            #expect(told(machine.handle(.called(called), at: .zero + .seconds(1))) == [called])
        }
    }

    @Test func `a daemon that is gone calls back about nothing, so the failure of the next one is told`() {
        var machine = DelegateStateMachine()
        let reply = PTTBus.reply(PTChannelError(.callActive))
        let failure = DelegateStateMachine.Failure(.remote(name: reply.name, message: reply.message))
        #expect(failure.isCalledBack)
        _ = machine.handle(.requested(.begin, first), at: .zero)
        #expect(told(machine.handle(.answered(.begin, first, failure), at: .zero)).count == 1)
        _ = machine.handle(.daemonGone, at: .zero)
        let called = DelegateCallback.failedToBeginTransmitting(first, PTChannelError(.callActive))
        #expect(told(machine.handle(.called(called), at: .zero)) == [called])
    }

    /// Whatever comes in, the delegate sees the documented order, and every request has at most one failure.
    @Test(.shows("order.any")) func `any events at all keep the documented order`() {
        var random = SeededGenerator()
        for _ in 0..<400 {
            var machine = DelegateStateMachine()
            var order = DelegateCallbackOrder()
            var joined: UUID?
            var lost: UUID?
            var waiting: [(DelegateStateMachine.Request, UUID)] = []
            var asked = 0
            var now = Instant.zero
            for _ in 0..<250 {
                now = now + .milliseconds(Int.random(in: 0...3_000, using: &random))
                let event = Self.event(&random, [first, second], &waiting)
                if case .requested = event { asked += 1 }
                if case .daemonGone = event, joined != nil {
                    lost = joined
                }
                for action in machine.handle(event, at: now) {
                    switch action {
                    case .activeChannelChanged(let uuid): joined = uuid
                    case .refuse:
                        guard case .called = event else {
                            Issue.record("refused \(event)")
                            return
                        }
                    case .tell(.didLeaveChannel(let uuid, _))
                    where uuid == lost && joined == nil && !isOpen(order, uuid):
                        lost = nil
                    case .tell(let callback):
                        let isInOrder = order.accept(callback)
                        #expect(isInOrder, "\(callback) after \(event)")
                    }
                }
                if case .daemonGone = event {
                    #expect(!order.isTransmitting && !order.isSessionActive)
                    order = DelegateCallbackOrder()
                }
            }
            #expect(machine.waitingCount == waiting.count)
        }
    }

    /// Whether the order knows the channel as joined: then a leave is an ordinary one.
    private func isOpen(_ order: DelegateCallbackOrder, _ uuid: UUID) -> Bool {
        var copy = order
        return copy.accept(.didLeaveChannel(uuid, reason: .unknown))
    }

    private static func event(
        _ random: inout SeededGenerator, _ channels: [UUID],
        _ waiting: inout [(DelegateStateMachine.Request, UUID)]
    ) -> DelegateStateMachine.Event {
        let uuid = channels.randomElement(using: &random)!
        let request = [DelegateStateMachine.Request.join, .leave, .begin, .stop].randomElement(using: &random)!
        let error = PTChannelError(.callActive)
        switch Int.random(in: 0..<16, using: &random) {
        case 0, 1: return .called(.didJoinChannel(uuid, reason: .developerRequest))
        case 2: return .called(.didLeaveChannel(uuid, reason: .userRequest))
        case 3, 4: return .called(.didBeginTransmitting(uuid, source: .developerRequest))
        case 5: return .called(.didEndTransmitting(uuid, source: .userRequest))
        case 6, 7: return .called(.didActivateAudioSession)
        case 8: return .called(.didDeactivateAudioSession)
        case 9: return .called(.failedToBeginTransmitting(uuid, error))
        case 10: return .called(.failedToJoinChannel(uuid, error))
        case 11, 12:
            waiting.append((request, uuid))
            return .requested(request, uuid)
        case 13:
            guard let index = waiting.indices.randomElement(using: &random) else { return .daemonGone }
            let (request, uuid) = waiting.remove(at: index)
            let failure = DelegateStateMachine.Failure(error: error, isCalledBack: random.chance(50))
            return .answered(request, uuid, random.chance(50) ? failure : nil)
        case 14: return .daemonGone
        default: return .registered(activeChannel: random.chance(50) ? uuid : nil)
        }
    }
}
