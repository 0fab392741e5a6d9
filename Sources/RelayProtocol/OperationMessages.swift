// The messages for the operation of a relay: where its members go when it stops, and rules that change while it runs.
import SwiftProtobuf

/// The address at which a relay is reached.
public struct RelayPlace: Sendable, Hashable, CustomStringConvertible {
    /// A name, an IPv4 address, or an IPv6 address without brackets, maybe with a zone.
    public let host: String
    /// The UDP port, 1 to 65535.
    public let port: UInt16

    /// nil when `host` is not a host (`InvitationLink.isHost`), or the port is 0.
    public init?(host: String, port: UInt16) {
        guard InvitationLink.isHost(host), port > 0 else { return nil }
        self.init(host: host, at: port)
    }

    /// Reads HOST:PORT as it stands in a link: an IPv6 address is in brackets. nil for anything else.
    public init?(_ text: String) {
        guard let place = try? RelayPlace(authority: text[...]) else { return nil }
        self = place
    }

    /// A place that is known to be one.
    init(host: String, at port: UInt16) {
        self.host = host
        self.port = port
    }

    /// The interface by which a link-local address is reached (RFC 4007, 11); nil when the host has none.
    public var zone: String? { host.firstIndex(of: "%").map { String(host[host.index(after: $0)...]) } }

    /// The same by another interface; nil when the host has none.
    public func inZone(_ zone: String) -> RelayPlace? {
        host.firstIndex(of: "%").flatMap { RelayPlace(host: "\(host[..<$0])%\(zone)", port: port) }
    }

    /// HOST:PORT as in a link.
    public var description: String {
        host.contains(":") ? "[\(host.replacing("%", with: "%25"))]:\(port)" : "\(host):\(port)"
    }
}

extension RelayPlace {
    init(_ wire: Pttd_Relay_V1_Successor) throws(RelayMessageError) {
        let port = try valid(UInt16(exactly: wire.port), "port", "is above 65535")
        self = try valid(RelayPlace(host: wire.host, port: port), "host", "is not a host, or the port is 0")
    }

    var wire: Pttd_Relay_V1_Successor {
        var wire = Pttd_Relay_V1_Successor()
        wire.host = host
        wire.port = UInt32(port)
        return wire
    }
}

extension ServerMessage {
    /// How the floor is shared, and what this member may do with it. Part of `Welcome`, and sent again when it changes.
    public struct FloorRules: Sendable, Hashable {
        /// How the floor is shared.
        public var mode: FloorMode
        /// Whether requests for the floor can wait until it is free.
        public var hasQueue: Bool
        /// How much higher than the talker's the priority of a request has to be to take the floor from it; 0: only an emergency does.
        public var preemptionStep: UInt8
        /// Whether this member may not talk.
        public var isListenOnly: Bool
        /// The highest priority that this member's requests count with, 0…254.
        public var priority: UInt8

        /// The rules as they hold for one member.
        public init(mode: FloorMode, hasQueue: Bool, preemptionStep: UInt8, isListenOnly: Bool, priority: UInt8) {
            self.mode = mode
            self.hasQueue = hasQueue
            self.preemptionStep = preemptionStep
            self.isListenOnly = isListenOnly
            self.priority = priority
        }

        init(_ wire: Pttd_Relay_V1_FloorRules) throws(RelayMessageError) {
            self.init(
                mode: FloorMode(rawValue: wire.floorMode.rawValue) ?? .unspecified, hasQueue: wire.hasFloorQueue_p,
                preemptionStep: try RelayProtocol.priority(wire.preemptionStep, "preemption_step"),
                isListenOnly: wire.listenOnly,
                priority: try RelayProtocol.priority(wire.floorPriority, "floor_priority"))
        }

        var wire: Pttd_Relay_V1_FloorRules {
            var wire = Pttd_Relay_V1_FloorRules()
            wire.floorMode = .init(rawValue: mode.rawValue) ?? .unspecified
            wire.hasFloorQueue_p = hasQueue
            wire.preemptionStep = UInt32(preemptionStep)
            wire.listenOnly = isListenOnly
            wire.floorPriority = UInt32(priority)
            return wire
        }
    }
}

extension ServerMessage.Welcome {
    /// Its rules of the floor, in the form of the message that reports changes.
    public var floorRules: ServerMessage.FloorRules {
        get {
            .init(
                mode: floorMode, hasQueue: hasFloorQueue, preemptionStep: preemptionStep, isListenOnly: isListenOnly,
                priority: floorPriority)
        }
        set {
            floorMode = newValue.mode
            hasFloorQueue = newValue.hasQueue
            preemptionStep = newValue.preemptionStep
            isListenOnly = newValue.isListenOnly
            floorPriority = newValue.priority
        }
    }
}
