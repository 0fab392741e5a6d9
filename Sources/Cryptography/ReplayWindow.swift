// A replay window: each counter is accepted once.

/// Remembers which of the last 1024 counters were accepted, so that nothing is accepted twice.
///
/// The highest counter accepted is the window's right edge; what lies 1024 or more below it is too old to tell and is
/// refused (the method of RFC 4303, section 3.4.3). It is wide enough for a packet that comes again 10 s later. Ask `allows` before the MAC is checked, `accept` after.
public struct ReplayWindow: Sendable {
    /// How far below the highest counter an unseen one is still accepted.
    public static let size: UInt64 = 1_024

    private var highest: UInt64 = 0
    private var isEmpty = true
    /// Bit `counter % 1024` says whether that counter was seen.
    private var seen = InlineArray<16, UInt64>(repeating: 0)

    /// A window that has seen nothing.
    public init() {}

    /// Whether `counter` is neither seen nor too old.
    public func allows(_ counter: UInt64) -> Bool {
        guard !isEmpty, counter <= highest else { return true }
        guard highest - counter < Self.size else { return false }
        return word(counter) & bit(counter) == 0
    }

    /// Marks `counter` as seen; false, without any change, when it was seen already or is too old.
    public mutating func accept(_ counter: UInt64) -> Bool {
        guard allows(counter) else { return false }
        if isEmpty || counter > highest {
            advance(to: counter)
        }
        setWord(counter, word(counter) | bit(counter))
        return true
    }

    /// The highest counter accepted, nil while there is none.
    public var highestAccepted: UInt64? { isEmpty ? nil : highest }

    private mutating func advance(to counter: UInt64) {
        if isEmpty || counter - highest >= Self.size {
            seen = InlineArray(repeating: 0)
        } else {
            for skipped in (highest + 1)...counter {
                setWord(skipped, word(skipped) & ~bit(skipped))
            }
        }
        highest = counter
        isEmpty = false
    }

    private func bit(_ counter: UInt64) -> UInt64 { 1 << (counter & 63) }

    private func word(_ counter: UInt64) -> UInt64 { seen[Int(counter >> 6 & 15)] }

    private mutating func setWord(_ counter: UInt64, _ value: UInt64) { seen[Int(counter >> 6 & 15)] = value }
}
