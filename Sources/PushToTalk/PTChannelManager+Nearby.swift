// Channels nearby, which Apple's framework does not know: which there are, creating, joining and deleting them.
import DBus
import PTTBus
import PushToTalkCore
import Reactor

/// A channel that a machine nearby announces, or that this one hosts.
public struct PTNearbyChannel: Hashable, Sendable, Identifiable {
    /// How somebody gets in.
    public enum Admission: String, Hashable, Sendable, CaseIterable {
        /// Whoever is near may join.
        case open
        /// Whoever knows the code may join.
        case code
        /// The host's user is asked.
        case ask
    }

    /// Names the channel in requests: two hosts may claim one UUID.
    public let id: String
    /// The channel's UUID, which delegate callbacks use once it is joined.
    public let channelUUID: UUID
    /// What its creator calls it: a stranger's text, to be shown as plain text.
    public let name: String
    /// The creator's name. It is untrusted text.
    public let creator: String
    /// The number of members, as its host reports it.
    public let memberCount: Int
    /// How somebody gets in.
    public let admission: Admission
    /// Whether this machine hosts it.
    public let isHostedHere: Bool
    /// The code of a locked channel that this machine hosts, six digits; nil: none, or not known here.
    public let code: String?
    /// How it was found; empty for a channel of this machine that nothing has found.
    public let foundBy: Set<Means>
    /// How strongly Bluetooth hears it, in dBm; nil: not by Bluetooth.
    public let signalStrength: Int?

    /// By which means a channel is found.
    public enum Means: String, Hashable, Sendable, CaseIterable {
        /// The local network.
        case network
        /// Bluetooth Low Energy. Talking needs a network all the same.
        case bluetooth
    }

    /// nil when pttd reports a value that this version does not know.
    init?(_ description: NearbyChannelDescription) {
        guard let uuid = UUID(uuidString: description.uuid), let admission = Admission(rawValue: description.admission)
        else { return nil }
        (id, channelUUID, self.admission) = (description.id, uuid, admission)
        (name, creator) = (description.name, description.creator)
        (memberCount, isHostedHere) = (description.members, description.isOwn)
        code = description.code.isEmpty ? nil : description.code
        (foundBy, signalStrength) = (
            Set(description.foundBy.compactMap { Means(rawValue: $0) }), description.signalStrength
        )
    }
}

/// Somebody who waits to be admitted to a channel that this machine hosts.
public struct PTNearbyNewcomer: Hashable, Sendable, Identifiable {
    /// Names the newcomer in requests.
    public let id: String
    /// The newcomer's own name. It is untrusted text.
    public let name: String
    /// The channel's `PTNearbyChannel.id`.
    public let channel: PTNearbyChannel.ID
    /// The channel's name.
    public let channelName: String

    init(_ description: NearbyNewcomerDescription) {
        (id, name) = (description.id, description.name)
        (channel, channelName) = (description.channel, description.channelName)
    }
}

/// The channels nearby at one moment.
public struct PTNearbyList: Hashable, Sendable {
    /// The channels, by name.
    public var channels: [PTNearbyChannel] = []
    /// The people who wait to be admitted to channels of this machine, in the order of their requests.
    public var newcomers: [PTNearbyNewcomer] = []
    /// What keeps channels from being found or announced, and what to do, in words for the user; nil: nothing does.
    public var problem: String?
}

extension PTChannelManager {
    /// The channels nearby: the current list, and a new one at every change, until the stream is no longer read. pttd
    /// searches for channels only while a stream is read. The stream never ends by itself. While pttd is not running,
    /// its list is empty and its `problem` says so.
    public func nearbyChannels() -> AsyncStream<PTNearbyList> {
        let (stream, continuation) = AsyncStream.makeStream(of: PTNearbyList.self, bufferingPolicy: .bufferingNewest(1))
        let id = UUID()
        continuation.onTermination = { [weak link] _ in
            guard let link else { return }
            link.loop.execute { link.assumeIsolated { $0.endNearby(id) } }
        }
        if !link.submit({ $0.followNearby(id, continuation) }) { continuation.finish() }
        return stream
    }

    /// Creates a channel that this machine hosts and announces, and makes it the active one. pttd carries its sound.
    /// The delegate gets the same callbacks as after `requestJoinChannel(channelUUID:descriptor:)`.
    ///
    /// - Parameters:
    ///   - name: What others read; nil: the machine's name.
    ///   - admission: How somebody gets in. A locked channel gets a code by chance, which `nearbyChannels()` tells.
    /// - Returns: The channel's UUID.
    /// - Throws: `PTChannelError`.
    @discardableResult
    public nonisolated(nonsending) func createNearbyChannel(
        named name: String? = nil, admission: PTNearbyChannel.Admission = .open
    ) async throws -> UUID {
        let options: [String: DBusValue] = ["Admission": .string(admission.rawValue)]
        let answer = try await link.askNearby("CreateChannel", [busName(name ?? ""), .properties(options)])
        guard let uuid = answer.first?.stringValue.flatMap({ UUID(uuidString: $0) }) else {
            throw PTChannelError(.unknown, explanation: "pttd answered without a UUID")
        }
        return uuid
    }

    /// Makes a channel nearby the active one. pttd carries its sound. The delegate gets the same callbacks as after
    /// `requestJoinChannel(channelUUID:descriptor:)`. It takes up to 135 s when the channel's creator is asked.
    ///
    /// - Parameters:
    ///   - channel: One of `nearbyChannels()`.
    ///   - code: Of a locked channel: six digits, which may have spaces between them.
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func joinNearbyChannel(_ channel: PTNearbyChannel, code: String? = nil) async throws
    {
        let options: [String: DBusValue] = code.map { ["Code": busName($0)] } ?? [:]
        try await link.askNearby(
            "JoinChannel", [.string(channel.id), .properties(options)], timeout: PTTBusLimits.nearbyJoinTime)
    }

    /// Lets a newcomer into a channel of this machine, or does not.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func decide(_ newcomer: PTNearbyNewcomer, admits: Bool) async throws {
        try await link.askNearby(admits ? "Admit" : "Refuse", [.string(newcomer.id)])
    }

    /// Ends a channel for all its members; only on the machine that created it.
    ///
    /// - Throws: `PTChannelError`.
    public nonisolated(nonsending) func deleteNearbyChannel(_ channel: PTNearbyChannel) async throws {
        try await link.askNearby("DeleteChannel", [.string(channel.id)])
    }
}
