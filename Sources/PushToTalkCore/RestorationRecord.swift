// The record that restores a channel after a restart: a value with its own text form.

import FoundationEssentials
import Vocabulary

/// The record of the active channel that is kept over restarts of the daemon and of the machine.
///
/// The text form has a version, and a checksum, so that files of another version and damaged files are detected. It
/// holds secrets (the token, the invitation): store it where only the daemon can read it.
public struct RestorationRecord: Hashable, Sendable {
    /// The version of the text form that this code writes, and the only one it reads.
    public static let version = 1
    /// The longest text form, in bytes: the largest image in base64, and half as much again for the rest.
    public static let byteCountMax = PTImage.byteCountMax * 2

    /// The channel.
    public var channelUUID: UUID
    /// How it is shown.
    public var descriptor: PTChannelDescriptor
    /// Who may talk when.
    public var mode: PTTransmissionMode
    /// Whether buttons of hands-free devices begin transmissions.
    public var accessoryButtonEventsEnabled: Bool
    /// Whose the sound is.
    public var media: MediaOwner
    /// The well-known bus name of the program that joined; empty: it has none, or a user or the configuration joined. A
    /// unique name (`:1.42`) may be kept, too; nothing can be started by it.
    public var application: String
    /// The invitation of the join; nil: it had none.
    public var invitation: String?
    /// The push token of this membership; nil: there is no program, and so no token.
    public var token: PushToken?

    /// A record with all it says.
    public init(
        channelUUID: UUID, descriptor: PTChannelDescriptor, mode: PTTransmissionMode = .halfDuplex,
        accessoryButtonEventsEnabled: Bool = true, media: MediaOwner = .daemon, application: String = "",
        invitation: String? = nil, token: PushToken? = nil
    ) {
        self.channelUUID = channelUUID
        self.descriptor = descriptor
        self.mode = mode
        self.accessoryButtonEventsEnabled = accessoryButtonEventsEnabled
        self.media = media
        self.application = application
        self.invitation = invitation
        self.token = token
    }

    /// What is to be kept of a channel that is joined.
    public init(
        channel: ChannelManagerStateMachine.Channel, token: PushToken?, application: String = "",
        invitation: String? = nil
    ) {
        self.init(
            channelUUID: channel.uuid, descriptor: channel.descriptor, mode: channel.transmissionMode,
            accessoryButtonEventsEnabled: channel.accessoryButtonEventsEnabled, media: channel.media,
            application: application, invitation: invitation, token: token)
    }
}
