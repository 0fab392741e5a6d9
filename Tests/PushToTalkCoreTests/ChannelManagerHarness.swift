// A channel manager with simulated time and a sound device that answers when the test says so.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Vocabulary

typealias Machine = ChannelManagerStateMachine
typealias Action = ChannelManagerStateMachine.Action
typealias Event = ChannelManagerStateMachine.Event

struct ChannelManagerHarness {
    static let channel = UUID()
    static let other = UUID()
    static let descriptor = PTChannelDescriptor(name: "Crew", image: nil)
    static let ann = PTParticipant(name: "Ann", image: nil)
    static let phone = CallHold(holder: "phone", description: "a call")
    static let bob = PTParticipant(name: "Bob", image: nil)

    var machine: Machine
    var now = Instant.zero
    private var nextRequest: UInt64 = 0

    init(
        _ configuration: Machine.Configuration = .init(), joined: Bool = true, mode: PTTransmissionMode = .halfDuplex
    ) {
        machine = Machine(configuration: configuration)
        guard joined else { return }
        _ = request(.join(channelUUID: Self.channel, Self.descriptor, mode: mode))
    }

    mutating func send(_ event: Event) -> [Action] {
        machine.handle(event, at: now)
    }

    /// What comes of a request: everything but its answer, and the answer if there was one.
    mutating func request(_ request: Machine.Request) -> (actions: [Action], answer: Answer?) {
        nextRequest += 1
        let identifier = RequestIdentifier(rawValue: nextRequest)
        var answer: Answer?
        let actions = machine.handle(.request(request, identifier), at: now).filter { action in
            guard case .complete(identifier, let error) = action else { return true }
            answer = error.map { .failed($0.code) } ?? .done
            return false
        }
        return (actions, answer)
    }

    mutating func begin(
        _ source: PTChannelTransmitRequestSource = .userRequest, floor: FloorOutlook = .unknown
    ) -> (actions: [Action], answer: Answer?) {
        request(.beginTransmitting(channelUUID: Self.channel, source: source, floor: floor))
    }

    mutating func stop(_ source: PTChannelTransmitRequestSource = .userRequest) -> (actions: [Action], answer: Answer?)
    {
        request(.stopTransmitting(channelUUID: Self.channel, source: source))
    }

    mutating func setParticipant(_ participant: PTParticipant?) -> (actions: [Action], answer: Answer?) {
        request(.setActiveRemoteParticipant(participant, channelUUID: Self.channel))
    }

    mutating func setMode(_ mode: PTTransmissionMode) -> (actions: [Action], answer: Answer?) {
        request(.setTransmissionMode(mode, channelUUID: Self.channel))
    }

    mutating func setStatus(_ status: PTServiceStatus) -> (actions: [Action], answer: Answer?) {
        request(.setServiceStatus(status, channelUUID: Self.channel))
    }

    /// Begins, with the device opening at once.
    mutating func talk(_ source: PTChannelTransmitRequestSource = .userRequest) {
        _ = begin(source)
        if machine.audioSession != .active { _ = send(.audioSessionActivated) }
        _ = send(.captureBegan)
    }

    /// Runs to the machine's next deadline.
    mutating func passDeadline() -> [Action] {
        guard let deadline = machine.nextDeadline else { return [] }
        now = max(now, deadline)
        return send(.deadlineReached)
    }
}

enum Answer: Hashable {
    case done
    case failed(PTChannelError.Code)
}

extension Action {
    var isStopOfCapture: Bool { if case .stopCapture = self { true } else { false } }
}

extension [Action] {
    var callbacks: [DelegateCallback] {
        compactMap { if case .callback(let callback) = $0 { callback } else { nil } }
    }
    var notices: [Machine.Notice] {
        compactMap { if case .notice(let notice) = $0 { notice } else { nil } }
    }
    var tones: [Tone] {
        compactMap { if case .playTone(let tone) = $0 { tone } else { nil } }
    }
    var transmissionEnd: TransmissionEndCause? {
        for case .transmissionEnding(let end) in notices { return end }
        return nil
    }
    /// The code of the one failure callback.
    var failure: PTChannelError.Code? {
        for callback in callbacks {
            switch callback {
            case .failedToJoinChannel(_, let error), .failedToLeaveChannel(_, let error),
                .failedToBeginTransmitting(_, let error), .failedToStopTransmitting(_, let error):
                return error.code
            default: break
            }
        }
        return nil
    }
}

extension RestorationRecord {
    /// The join that restores the channel of a program which is not running yet.
    var restoringJoin: Machine.Request {
        .join(
            channelUUID: channelUUID, descriptor, reason: .channelRestoration, mode: mode,
            options: .init(
                media: media, program: token == nil ? .none : .absent, canStartProgram: true,
                accessoryButtonEventsEnabled: accessoryButtonEventsEnabled, restoredToken: token))
    }
}
