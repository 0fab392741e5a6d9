// A probe that every QUIC server answers without a connection: which versions it supports. Pure.

/// A packet of a version that nobody speaks, and the recognition of its answer (RFC 8999; RFC 9000, sections 6 and 15).
enum VersionProbe {
    /// The least that a server answers to (RFC 9000, section 14.1), and no more than any path carries.
    static let byteCount = 1_200
    static let idByteCount = 8

    /// The ids of a probe. Only a host that has seen the probe knows them.
    struct IDs: Hashable, Sendable {
        var destination: [UInt8]
        var source: [UInt8]

        /// - Parameter random: Unguessable bytes, twice `idByteCount`.
        init(random: [UInt8]) {
            precondition(random.count == 2 * VersionProbe.idByteCount, "two ids")
            destination = Array(random.prefix(VersionProbe.idByteCount))
            source = Array(random.suffix(VersionProbe.idByteCount))
        }
    }

    /// The packet.
    static func packet(_ ids: IDs) -> [UInt8] {
        // A long header; a version of the form 0x?a?a?a?a, which is reserved for this.
        var packet: [UInt8] = [0xC0]
        packet += ids.source.prefix(4).map { $0 & 0xF0 | 0x0A }
        packet += [UInt8(ids.destination.count)] + ids.destination
        packet += [UInt8(ids.source.count)] + ids.source
        packet += [UInt8](repeating: 0, count: byteCount - packet.count)
        return packet
    }

    /// The ids of the probe that this packet answers; nil for anything but a Version Negotiation packet that answers a probe.
    static func answered(by packet: [UInt8]) -> IDs? {
        let idEnd = 6 + idByteCount
        let versions = packet.count - (idEnd + 1 + idByteCount)
        guard versions >= 4, versions % 4 == 0, packet[0] & 0x80 != 0, packet[1..<5].allSatisfy({ $0 == 0 }),
            packet[5] == UInt8(idByteCount), packet[idEnd] == UInt8(idByteCount)
        else { return nil }
        // The server sends the ids back in each other's place.
        return IDs(random: Array(packet[(idEnd + 1)..<(idEnd + 1 + idByteCount)] + packet[6..<idEnd]))
    }
}
