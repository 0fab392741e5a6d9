// A link over TLS: its pings, and the media packets that the relay has by its count. Pure.
import MonotonicTime

/// When to ping, and what the answers tell.
struct WebPulse: Sendable {
    /// After a ping, how long nothing may come. TCP repeats what was lost, ever more rarely.
    static let answerTimeout: Duration = .seconds(10)

    /// What is due.
    enum Due: Sendable, Equatable {
        case ping(UInt64)
        case gone
    }

    /// After how much silence the relay is asked for a sign of life.
    var keepAlive: Duration
    private(set) var lastHeard: Instant?
    private(set) var roundTripTime: Duration?
    private var lastNumber: UInt64 = 0
    /// The pings that are not answered, the oldest first.
    private var pings: [(number: UInt64, at: Instant)] = []
    private var quietSince: Instant

    init(keepAlive: Duration, at now: Instant) {
        self.keepAlive = keepAlive
        quietSince = now
    }

    /// When `due` has to be asked.
    var nextDeadline: Instant {
        let ping = quietSince + keepAlive
        return goneAt.map { min($0, ping) } ?? ping
    }

    private var goneAt: Instant? {
        pings.first.map { max($0.at, lastHeard ?? $0.at) + Self.answerTimeout }
    }

    /// Something came.
    mutating func heard(at now: Instant) { lastHeard = now }

    /// Something was sent.
    mutating func sent(at now: Instant) { quietSince = now }

    /// Asks now.
    mutating func ping(at now: Instant) -> UInt64 {
        lastNumber += 1
        pings.append((lastNumber, now))
        // Older ones will not tell more.
        if pings.count > 8 { pings.removeFirst() }
        quietSince = now
        return lastNumber
    }

    /// A pong came.
    mutating func pong(_ number: UInt64, at now: Instant) {
        guard let index = pings.firstIndex(where: { $0.number == number }) else { return }
        note(roundTrip: now - pings[index].at)
        // TCP keeps the order: older ones are answered as well, or will not be.
        pings.removeFirst(index + 1)
    }

    /// A round trip was measured, smoothed as in RFC 6298.
    mutating func note(roundTrip: Duration) {
        roundTripTime = roundTripTime.map { ($0 * 7 + roundTrip) / 8 } ?? roundTrip
    }

    /// What is due now; nil: nothing.
    mutating func due(at now: Instant) -> Due? {
        if let goneAt, now >= goneAt { return .gone }
        return now >= quietSince + keepAlive ? .ping(ping(at: now)) : nil
    }
}

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
