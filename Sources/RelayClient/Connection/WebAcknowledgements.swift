// Which media packets the relay has, by the count that it acknowledges over TLS. Pure.

/// The numbers of the media packets that went out, in order, until the relay has acknowledged them.
struct WebAcknowledgements: Sendable {
    /// The most that are remembered: 20 s of packets of 10 ms. A relay is given up long before.
    static let countMaximum = 2_048

    private var numbers: [UInt64] = []
    /// Packets before the first of `numbers`, acknowledged or forgotten.
    private var passed: UInt32 = 0
    private var acknowledged: UInt32 = 0

    /// A packet went out under that number.
    mutating func sent(_ number: UInt64) {
        numbers.append(number)
        guard numbers.count > Self.countMaximum else { return }
        numbers.removeFirst()
        passed &+= 1
    }

    /// The relay has read so many packets on this connection.
    ///
    /// - Returns: The newest of them that was not acknowledged before; nil: none.
    /// - Throws: `Impossible` when the relay cannot have read so many.
    mutating func take(_ count: UInt32) throws(Impossible) -> UInt64? {
        let sent = passed &+ UInt32(numbers.count)
        let (new, all) = (count &- acknowledged, sent &- acknowledged)
        guard new <= all else { throw Impossible() }
        acknowledged = count
        let known = Int32(bitPattern: count &- passed)
        guard new > 0, known > 0 else { return nil }
        defer {
            numbers.removeFirst(Int(known))
            passed = count
        }
        return numbers[Int(known) - 1]
    }

    /// More were acknowledged than were sent, or fewer than before.
    struct Impossible: Error, Equatable {}
}
