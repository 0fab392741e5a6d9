// A membership as the restoration record and the channel service have it.
import PushToTalkCore
import RelayProtocol

extension ChannelOwner {
    /// What the record keeps of a program: its name, or the unique one, which outlives this daemon but not the bus.
    public var recordName: String { name.isEmpty ? busName ?? formerBusName ?? "" : name }

    /// The program that a record names.
    public init(recordName: String) {
        let isUnique = recordName.hasPrefix(":")
        self.init(name: isUnique ? "" : recordName, busName: nil, formerBusName: isUnique ? recordName : nil)
    }
}

extension ChannelMembership {
    /// The membership that a record keeps. An invitation that cannot be read any more is none.
    public init(_ record: RestorationRecord) {
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
    public func joining(_ reason: PTChannelJoinReason) -> ChannelJoining {
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
