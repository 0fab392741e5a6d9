// The director's values in the words of its neighbours: the record, the channel service, pushes.
import Bridge
import ChannelService
import MonotonicTime
import PushToTalkCore
import RelayClient
import RelayProtocol

extension ChannelOwner {
    /// What the record keeps of a program: its name, or the unique one, which outlives this daemon but not the bus.
    var recordName: String { name.isEmpty ? busName ?? formerBusName ?? "" : name }

    /// The program that a record names.
    init(recordName: String) {
        let isUnique = recordName.hasPrefix(":")
        self.init(name: isUnique ? "" : recordName, busName: nil, formerBusName: isUnique ? recordName : nil)
    }
}

extension ChannelMembership {
    /// The membership that a record keeps. An invitation that cannot be read any more is none.
    init(_ record: RestorationRecord) {
        self.init(
            uuid: record.channelUUID, descriptor: record.descriptor,
            owner: record.token == nil ? nil : ChannelOwner(recordName: record.application),
            hasApplicationMedia: record.media == .application,
            link: record.invitation.flatMap { try? InvitationLink($0) })
        mode = record.mode
        accessoryButtonEventsEnabled = record.accessoryButtonEventsEnabled
        token = record.token
    }

    /// The join of it with the channel service.
    func joining(_ reason: PTChannelJoinReason) -> ChannelJoining {
        ChannelJoining(
            descriptor: descriptor, reason: reason, mode: mode,
            options: .init(
                media: hasApplicationMedia ? .application : .daemon,
                program: owner.map { $0.busName == nil ? .absent : .present } ?? .none,
                canStartProgram: owner?.name.isEmpty == false,
                accessoryButtonEventsEnabled: accessoryButtonEventsEnabled, restoredToken: token,
                talkTimeLimit: talkTimeLimit))
    }
}

extension PushTopic {
    /// The topic of pushes to the program of this name; programs without one share one.
    init(program name: String) {
        // Bus names are printing ASCII and at most 255 bytes long.
        let topic = PushTopic(application: name.isEmpty ? "org.pttd" : name) ?? PushTopic(application: "org.pttd")
        guard let topic else { preconditionFailure("a topic that is one") }
        self = topic
    }
}

extension Push {
    /// A push as the relay delivers it; nil when its payload is none, which the relay should have refused.
    init?(_ push: RelayPush) {
        guard let token = PushToTalkCore.PushToken(push.token.bytes),
            let payload = try? PushPayload(validating: push.payload)
        else { return nil }
        self.init(
            identifier: "relay at \(push.receivedAt.nanoseconds)", token: token, payload: payload,
            isHighPriority: push.priority > 5, expiry: push.expiresAt.map { .at($0) } ?? .immediate)
    }
}
