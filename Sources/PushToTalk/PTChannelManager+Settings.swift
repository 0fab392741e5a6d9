// What an app tells of its channel, each asynchronously or with a completion handler, as Apple's methods come in both forms.
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
        try await link.inform(
            channelUUID, "SetDescriptor",
            [busName(channelDescriptor.name), .properties(imageOptions(channelDescriptor.image))])
    }

    /// Tells who is speaking, which activates the audio session and keeps the user from transmitting in half duplex; nil: nobody any more.
    ///
    /// - Throws: `PTChannelError`: `transmissionInProgress` for somebody while the user transmits in half duplex.
    public nonisolated(nonsending) func setActiveRemoteParticipant(_ participant: PTParticipant?, channelUUID: UUID)
        async throws
    {
        guard let participant else {
            return try await link.inform(channelUUID, "ClearActiveRemoteParticipant")
        }
        try await link.inform(
            channelUUID, "SetActiveRemoteParticipant",
            [busName(participant.name), .properties(imageOptions(participant.image))])
    }

    /// Tells whether the app's service can be used; nobody transmits unless it is `.ready`, as it is at first.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setServiceStatus(_ status: PTServiceStatus, channelUUID: UUID) async throws {
        try await link.inform(channelUUID, "SetServiceStatus", [.string(status.busName)])
    }

    /// Tells when the user may transmit; `.halfDuplex` at first.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setTransmissionMode(_ transmissionMode: PTTransmissionMode, channelUUID: UUID)
        async throws
    {
        try await link.inform(channelUUID, "SetTransmissionMode", [.string(transmissionMode.busName)])
    }

    /// Whether buttons of accessories begin and end transmissions, as they do at first.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func setAccessoryButtonEventsEnabled(_ enabled: Bool, channelUUID: UUID) async throws
    {
        try await link.inform(channelUUID, "SetAccessoryButtonEventsEnabled", [.boolean(enabled)])
    }

    // MARK: With completion handlers, which are called on `delegateQueue`

    /// `setChannelDescriptor(_:channelUUID:)` without waiting.
    public func setChannelDescriptor(
        _ channelDescriptor: PTChannelDescriptor, channelUUID: UUID,
        completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        complete(completionHandler) { try await $0.setChannelDescriptor(channelDescriptor, channelUUID: channelUUID) }
    }

    /// `setActiveRemoteParticipant(_:channelUUID:)` without waiting.
    public func setActiveRemoteParticipant(
        _ participant: PTParticipant?, channelUUID: UUID, completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        complete(completionHandler) { try await $0.setActiveRemoteParticipant(participant, channelUUID: channelUUID) }
    }

    /// `setServiceStatus(_:channelUUID:)` without waiting.
    public func setServiceStatus(
        _ status: PTServiceStatus, channelUUID: UUID, completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        complete(completionHandler) { try await $0.setServiceStatus(status, channelUUID: channelUUID) }
    }

    /// `setTransmissionMode(_:channelUUID:)` without waiting.
    public func setTransmissionMode(
        _ transmissionMode: PTTransmissionMode, channelUUID: UUID,
        completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        complete(completionHandler) { try await $0.setTransmissionMode(transmissionMode, channelUUID: channelUUID) }
    }

    /// `setAccessoryButtonEventsEnabled(_:channelUUID:)` without waiting.
    public func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, channelUUID: UUID, completionHandler: (@Sendable ((any Error)?) -> Void)? = nil
    ) {
        complete(completionHandler) { try await $0.setAccessoryButtonEventsEnabled(enabled, channelUUID: channelUUID) }
    }

    private func complete(
        _ completionHandler: (@Sendable ((any Error)?) -> Void)?,
        _ work: nonisolated(nonsending) @escaping @Sendable (PTChannelManager) async throws -> Void
    ) {
        // At once, so that what is asked for first goes out first.
        Task.immediate {
            do {
                try await work(self)
                if let completionHandler { link.caller.queue.async { completionHandler(nil) } }
            } catch {
                if let completionHandler { link.caller.queue.async { completionHandler(error) } }
            }
        }
    }
}
