// A replay window: each counter is accepted once.

/// Remembers which of the last 1024 counters were accepted, so that nothing is accepted twice.
///
/// The highest counter accepted is the window's right edge; what lies 1024 or more below it is too old to tell and is
/// refused (the method of RFC 4303, section 3.4.3). It is wide enough for a packet that comes again 10 s later. Ask `allows` before the MAC is checked, `accept` after.
public struct ReplayWindow: Sendable {
    /// How far below the highest counter an unseen one is still accepted.
    public static let size: UInt64 = 1_024

    /// The highest counter accepted, nil while there is none.
    public private(set) var highestAccepted: UInt64?
    /// Bit `counter % 1024` says whether that counter was seen.
    private var seen = InlineArray<16, UInt64>(repeating: 0)

    /// A window that has seen nothing.
    public init() {}

    /// Whether `counter` is neither seen nor too old.
    public func allows(_ counter: UInt64) -> Bool {
        guard let highestAccepted, counter <= highestAccepted else { return true }
        return highestAccepted - counter < Self.size && word(counter) & bit(counter) == 0
    }

    /// Marks `counter` as seen; false, without any change, when it was seen already or is too old.
    public mutating func accept(_ counter: UInt64) -> Bool {
        guard allows(counter) else { return false }
        advance(to: counter)
        setWord(counter, word(counter) | bit(counter))
        return true
    }

    /// Moves the right edge to a counter that is beyond it.
    private mutating func advance(to counter: UInt64) {
        if let highestAccepted, counter <= highestAccepted { return }
        if let highestAccepted, counter - highestAccepted < Self.size {
            for skipped in (highestAccepted + 1)...counter { setWord(skipped, word(skipped) & ~bit(skipped)) }
        } else {
            seen = InlineArray(repeating: 0)
        }
        highestAccepted = counter
    }

    private func bit(_ counter: UInt64) -> UInt64 { 1 << (counter & 63) }

    private func word(_ counter: UInt64) -> UInt64 { seen[Int(counter >> 6 & 15)] }

    private mutating func setWord(_ counter: UInt64, _ value: UInt64) { seen[Int(counter >> 6 & 15)] = value }
}
