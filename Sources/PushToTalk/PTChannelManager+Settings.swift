// The settings that an app makes for its channel. Each has an asynchronous form and one with a completion handler, as
// Apple's methods do.
import DBus
import PTTBus
import PushToTalkCore

extension PTChannelManager {
    /// Shows another name and image, such as those of the conversation that is going on.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setChannelDescriptor(
        _ channelDescriptor: PTChannelDescriptor, channelUUID: UUID
    ) async throws {
        try await set(.descriptor(channelDescriptor), channelUUID)
    }

    /// Tells who is speaking, which activates the audio session and keeps the user from transmitting in half duplex; nil: nobody any more.
    ///
    /// - Throws: `PTChannelError`: `transmissionInProgress` for somebody while the user transmits in half duplex.
    public nonisolated(nonsending) func setActiveRemoteParticipant(
        _ participant: PTParticipant?, channelUUID: UUID
    ) async throws {
        try await set(.activeRemoteParticipant(participant), channelUUID)
    }

    /// Reports whether the app's service can be used. Nobody transmits unless it is `.ready`, which is the initial
    /// status.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setServiceStatus(_ status: PTServiceStatus, channelUUID: UUID) async throws {
        try await set(.serviceStatus(status), channelUUID)
    }

    /// Tells when the user may transmit; `.halfDuplex` at first.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setTransmissionMode(
        _ transmissionMode: PTTransmissionMode, channelUUID: UUID
    ) async throws {
        try await set(.transmissionMode(transmissionMode), channelUUID)
    }

    /// Whether buttons of accessories begin and end transmissions, as they do at first.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, channelUUID: UUID
    ) async throws {
        try await set(.accessoryButtonEventsEnabled(enabled), channelUUID)
    }

    // MARK: With completion handlers, which are called on `delegateQueue`

    /// `setChannelDescriptor(_:channelUUID:)` without waiting.
    public func setChannelDescriptor(
        _ channelDescriptor: PTChannelDescriptor, channelUUID: UUID,
        completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        set(.descriptor(channelDescriptor), channelUUID, completionHandler)
    }

    /// `setActiveRemoteParticipant(_:channelUUID:)` without waiting.
    public func setActiveRemoteParticipant(
        _ participant: PTParticipant?, channelUUID: UUID, completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        set(.activeRemoteParticipant(participant), channelUUID, completionHandler)
    }

    /// `setServiceStatus(_:channelUUID:)` without waiting.
    public func setServiceStatus(
        _ status: PTServiceStatus, channelUUID: UUID, completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        set(.serviceStatus(status), channelUUID, completionHandler)
    }

    /// `setTransmissionMode(_:channelUUID:)` without waiting.
    public func setTransmissionMode(
        _ transmissionMode: PTTransmissionMode, channelUUID: UUID,
        completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        set(.transmissionMode(transmissionMode), channelUUID, completionHandler)
    }

    /// `setAccessoryButtonEventsEnabled(_:channelUUID:)` without waiting.
    public func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, channelUUID: UUID, completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        set(.accessoryButtonEventsEnabled(enabled), channelUUID, completionHandler)
    }

    // MARK: Both forms

    private enum Setting {
        case descriptor(PTChannelDescriptor)
        case activeRemoteParticipant(PTParticipant?)
        case serviceStatus(PTServiceStatus)
        case transmissionMode(PTTransmissionMode)
        case accessoryButtonEventsEnabled(Bool)

        /// The method of `org.pttd.Channel1`, and its arguments.
        var call: (method: String, arguments: [DBusValue]) {
            switch self {
            case .descriptor(let descriptor):
                ("SetDescriptor", [busName(descriptor.name), .properties(imageOptions(descriptor.image))])
            case .activeRemoteParticipant(nil): ("ClearActiveRemoteParticipant", [])
            case .activeRemoteParticipant(let participant?):
                (
                    "SetActiveRemoteParticipant",
                    [busName(participant.name), .properties(imageOptions(participant.image))]
                )
            case .serviceStatus(let status): ("SetServiceStatus", [.string(status.busName)])
            case .transmissionMode(let mode): ("SetTransmissionMode", [.string(mode.busName)])
            case .accessoryButtonEventsEnabled(let enabled): ("SetAccessoryButtonEventsEnabled", [.boolean(enabled)])
            }
        }
    }

    private nonisolated(nonsending) func set(_ setting: Setting, _ channelUUID: UUID) async throws(PTChannelError) {
        let (method, arguments) = setting.call
        let result: Result<Void, PTChannelError> = await withCheckedContinuation { continuation in
            link.inform(channelUUID, method, arguments) { continuation.resume(returning: $0) }
        }
        try result.get()
    }

    private func set(
        _ setting: Setting, _ channelUUID: UUID, _ completionHandler: (@Sendable ((any Error)?) -> Void)?
    ) {
        let (method, arguments) = setting.call
        link.inform(channelUUID, method, arguments) { [queue = link.caller.queue] result in
            guard let completionHandler else { return }
            queue.async {
                switch result {
                case .success: completionHandler(nil)
                case .failure(let error): completionHandler(error)
                }
            }
        }
    }
}
