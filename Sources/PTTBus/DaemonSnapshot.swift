// The daemon at one moment, as a client knows it.
import DBus

/// Everything that `org.pttd` says at one moment.
public struct DaemonSnapshot: Sendable, Hashable {
    /// The daemon.
    public var manager = ManagerProperties()
    /// Its channels by object path.
    public var channels: [DBusObjectPath: ChannelProperties] = [:]
    /// Its accessories by object path.
    public var accessories: [DBusObjectPath: AccessoryProperties] = [:]

    /// Nothing yet.
    public init() {}

    /// The channel that is joined.
    public var activeChannel: (path: DBusObjectPath, properties: ChannelProperties)? {
        channels[manager.activeChannel].map { (manager.activeChannel, $0) }
    }

    mutating func set(_ interface: String, _ properties: [String: DBusValue], at path: DBusObjectPath) {
        switch interface {
        case PTTBus.managerInterface: manager = ManagerProperties(properties: manager.properties + properties)
        case PTTBus.channelInterface:
            channels[path] = ChannelProperties(properties: (channels[path] ?? .init()).properties + properties)
        case PTTBus.accessoryInterface:
            accessories[path] = AccessoryProperties(properties: (accessories[path] ?? .init()).properties + properties)
        default: break
        }
    }

    mutating func remove(_ interfaces: [String], at path: DBusObjectPath) {
        if interfaces.contains(PTTBus.channelInterface) { channels[path] = nil }
        if interfaces.contains(PTTBus.accessoryInterface) { accessories[path] = nil }
    }
}

private func + (lhs: [String: DBusValue], rhs: [String: DBusValue]) -> [String: DBusValue] {
    lhs.merging(rhs) { _, new in new }
}
