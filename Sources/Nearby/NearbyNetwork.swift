// STUB
import DBus
import Logging
import Reactor
import RelayProtocol

public struct NearbyChannel: Hashable, Sendable {
    public var announcement: NearbyAnnouncement
    public var places: [RelayPlace]
    public var isOwn: Bool
}

public actor NearbyNetwork {
    public init(
        bus: DBusConnection, logger: Logger, handler: @escaping @Sendable ([NearbyChannel], String) -> Void
    ) {}
    public func start() async {}
    public func browse(_ isWanted: Bool) {}
    public func announce(_ announcement: NearbyAnnouncement, port: UInt16) {}
    public func withdraw(_ channel: ChannelID) {}
    public func stop() async {}
}
