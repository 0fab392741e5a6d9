// What a member is told when it may do more or less than before.

extension ServerMessage {
    /// What a member may do, as far as it has changed since `Welcome`.
    public struct FloorRights: Sendable, Hashable {
        /// Whether this member may not talk.
        public var isListenOnly: Bool
        /// The highest priority that this member's requests count with, 0…254.
        public var priority: UInt8

        /// Rights of a member.
        public init(isListenOnly: Bool, priority: UInt8) {
            self.isListenOnly = isListenOnly
            self.priority = priority
        }
    }
}

extension ServerMessage.FloorRights {
    init(_ wire: Pttd_Relay_V1_FloorRights) throws(RelayMessageError) {
        self.init(
            isListenOnly: wire.listenOnly,
            priority: try RelayProtocol.priority(wire.floorPriority, "floor_priority"))
    }

    var wire: Pttd_Relay_V1_FloorRights {
        var wire = Pttd_Relay_V1_FloorRights()
        wire.listenOnly = isListenOnly
        wire.floorPriority = UInt32(priority)
        return wire
    }
}
