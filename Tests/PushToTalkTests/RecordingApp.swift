// An app of a test: notes what its delegates are told, in order, and answers as the test wants.
import BusTestSupport
import DBus
import Foundation
import PTTBus
import Synchronization
import Testing

@testable import PushToTalk

/// Both delegates of a channel manager.
final class RecordingApp: PTChannelManagerDelegate, PTChannelRestorationDelegate, Sendable {
    /// What was told, as `method(values)`.
    let told = Recorder<String>()
    /// What a push is answered with; it may do something with the manager first.
    let push = Mutex<@Sendable (PTChannelManager, [String: Any]) -> PTPushResult>({ _, _ in .leaveChannel })
    /// Called for each callback, on the delegates' queue.
    let hook = Mutex<(@Sendable (PTChannelManager, String) -> Void)?>(nil)

    private func note(_ manager: PTChannelManager, _ text: String) {
        told.record(text)
        hook.withLock { $0 }?(manager, text)
    }

    func channelManager(
        _ channelManager: PTChannelManager, didJoinChannel channelUUID: UUID, reason: PTChannelJoinReason
    ) { note(channelManager, "didJoinChannel(\(reason))") }

    func channelManager(
        _ channelManager: PTChannelManager, didLeaveChannel channelUUID: UUID, reason: PTChannelLeaveReason
    ) { note(channelManager, "didLeaveChannel(\(reason))") }

    func channelManager(
        _ channelManager: PTChannelManager, channelUUID: UUID,
        didBeginTransmittingFrom source: PTChannelTransmitRequestSource
    ) { note(channelManager, "didBeginTransmitting(\(source))") }

    func channelManager(
        _ channelManager: PTChannelManager, channelUUID: UUID,
        didEndTransmittingFrom source: PTChannelTransmitRequestSource
    ) { note(channelManager, "didEndTransmitting(\(source))") }

    func channelManager(_ channelManager: PTChannelManager, receivedEphemeralPushToken pushToken: Data) {
        note(channelManager, "receivedEphemeralPushToken")
        token.withLock { $0 = pushToken }
    }

    /// The latest token.
    let token = Mutex(Data())

    func incomingPushResult(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any]
    ) -> PTPushResult {
        note(channelManager, "incomingPushResult")
        return push.withLock { $0 }(channelManager, pushPayload)
    }

    func channelManager(_ channelManager: PTChannelManager, didActivate audioSession: PTAudioSession) {
        note(channelManager, audioSession.isActive ? "didActivate" : "didActivate, but it is inactive")
    }

    func channelManager(_ channelManager: PTChannelManager, didDeactivate audioSession: PTAudioSession) {
        note(channelManager, audioSession.isActive ? "didDeactivate, but it is active" : "didDeactivate")
    }

    func channelManager(
        _ channelManager: PTChannelManager, failedToJoinChannel channelUUID: UUID, error: any Error
    ) { note(channelManager, "failedToJoinChannel(\(Self.code(error)))") }

    func channelManager(
        _ channelManager: PTChannelManager, failedToLeaveChannel channelUUID: UUID, error: any Error
    ) { note(channelManager, "failedToLeaveChannel(\(Self.code(error)))") }

    func channelManager(
        _ channelManager: PTChannelManager, failedToBeginTransmittingInChannel channelUUID: UUID, error: any Error
    ) { note(channelManager, "failedToBeginTransmitting(\(Self.code(error)))") }

    func channelManager(
        _ channelManager: PTChannelManager, failedToStopTransmittingInChannel channelUUID: UUID, error: any Error
    ) { note(channelManager, "failedToStopTransmitting(\(Self.code(error)))") }

    func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int, completion: @escaping @Sendable () -> Void
    ) {
        note(channelManager, "incomingServiceUpdatePush(\(isHighPriority), \(remainingHighPriorityBudget))")
        completion()
    }

    func channelDescriptor(restoredChannelUUID channelUUID: UUID) -> PTChannelDescriptor {
        told.record("channelDescriptor")
        return PTChannelDescriptor(name: "Restored", image: PTImage(named: "call-start"))
    }

    private static func code(_ error: any Error) -> String {
        (error as? PTChannelError).map { "\($0.code)" } ?? "\(error)"
    }

    /// Waits until `text` has been told, and tells whether it was.
    func hears(_ text: String, times: Int = 1) async throws -> Bool {
        try await told.wait { told in told.filter { $0 == text }.count >= times }
            .filter { $0 == text }.count >= times
    }
}

extension BusFixture {
    /// A channel manager of its own, with this bus as the only one.
    func manager(_ app: RecordingApp, name: String? = nil, queue: DispatchQueue = .main) async throws
        -> PTChannelManager
    {
        try await PTChannelManager.make(
            Delegates(manager: app, restoration: app), settings: linkSettings(name: name, queue: queue))
    }

    func linkSettings(name: String? = nil, queue: DispatchQueue = .main) -> LinkSettings {
        LinkSettings(buses: [.address(bus.address)], applicationName: name, delegateQueue: queue)
    }
}
