// Additions to Apple's channel manager, for things that Apple's systems do elsewhere.
import DBus
import PTTBus
import PushToTalkCore

/// Whose the sound of a channel is.
public enum PTChannelMedia: String, Hashable, Sendable, CaseIterable {
    /// pttd records, sends, receives and plays; the app shows.
    case pttd
    /// The app records after `didActivate`, and sends by ways of its own: Apple's way.
    case application
}

extension PTChannelManager {
    /// `requestJoinChannel(channelUUID:descriptor:)` with an invitation to a relay, over which pushes for the channel come.
    ///
    /// - Parameters:
    ///   - channelUUID: The channel of the invitation.
    ///   - descriptor: How the user sees the channel.
    ///   - invitation: A `ptt://` link.
    ///   - media: Whose the sound is.
    public func requestJoinChannel(
        channelUUID: UUID, descriptor: PTChannelDescriptor, invitation: String, media: PTChannelMedia
    ) {
        join(
            channelUUID, descriptor, ["Link": busName(invitation), "Media": .string(media.rawValue)])
    }

    /// Hands a message of the app's own connection in as if it were a push: what `NEAppPushProvider.reportPushToTalkMessage(userInfo:)` does on
    /// Apple's systems. The delegate is asked for its push result.
    ///
    /// - Parameters:
    ///   - userInfo: Values that JSON knows.
    ///   - channelUUID: The channel it is for.
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func reportPushToTalkMessage(
        userInfo: [String: Any], channelUUID: UUID
    ) async throws {
        guard JSONSerialization.isValidJSONObject(userInfo),
            let json = try? JSONSerialization.data(withJSONObject: userInfo),
            json.count <= PTTBusLimits.payloadBytes
        else {
            throw PTChannelError(
                .unknown,
                explanation: "the message is not a JSON object of at most \(PTTBusLimits.payloadBytes) bytes")
        }
        let payload = DBusValue.string(String(decoding: json, as: UTF8.self))
        let result: Result<Void, PTChannelError> = await withCheckedContinuation { continuation in
            link.inform(channelUUID, "ReportPushToTalkMessage", [payload]) { continuation.resume(returning: $0) }
        }
        try result.get()
    }
}
