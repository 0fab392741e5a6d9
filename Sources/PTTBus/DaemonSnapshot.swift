// The daemon at one moment, as a client knows it.
import DBus
import Vocabulary

/// Everything that `org.pttd` says at one moment.
public struct DaemonSnapshot: Sendable, Hashable {
    /// The daemon.
    public var manager = ManagerProperties()
    /// Its channels by object path.
    public var channels: [DBusObjectPath: ChannelProperties] = [:]
    /// Its accessories by object path.
    public var accessories: [DBusObjectPath: AccessoryProperties] = [:]
    /// What it does for setting up accessories.
    public var accessoryManager = AccessoryManagerProperties()
    /// The channels nearby.
    public var nearby = NearbyProperties()
    /// The learning sessions by object path: the one under way, and one that is over while its caller looks at it.
    public var learning: [DBusObjectPath: LearningReport] = [:]

    /// Nothing yet.
    public init() {}

    /// The channel that is joined.
    public var activeChannel: (path: DBusObjectPath, properties: ChannelProperties)? {
        channels[manager.activeChannel].map { (manager.activeChannel, $0) }
    }

    mutating func set(_ interface: String, _ properties: [String: DBusValue], at path: DBusObjectPath) {
        switch interface {
        case PTTBus.managerInterface: manager.update(properties)
        case PTTBus.channelInterface: channels[path, default: .init()].update(properties)
        case PTTBus.accessoryInterface: accessories[path, default: .init()].update(properties)
        case PTTBus.accessoryManagerInterface: accessoryManager.update(properties)
        case PTTBus.nearbyInterface: nearby.update(properties)
        case PTTBus.learningInterface: learning[path, default: .init()].update(properties)
        default: break
        }
    }

    mutating func remove(_ interfaces: [String], at path: DBusObjectPath) {
        if interfaces.contains(PTTBus.channelInterface) { channels[path] = nil }
        if interfaces.contains(PTTBus.accessoryInterface) { accessories[path] = nil }
        if interfaces.contains(PTTBus.learningInterface) { learning[path] = nil }
    }
}
