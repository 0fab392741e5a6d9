// What a fuzzer is, and how it takes an input apart.

/// One parser, with what has to hold whatever comes.
struct Fuzzer: Sendable {
    let name: String
    /// The longest input, in bytes.
    let maximum: Int
    /// Inputs that mean something, made by the code that writes what the parser reads.
    let seeds: @Sendable () -> [[UInt8]]
    /// Feeds the parser. Whatever traps in it has been found.
    let body: @Sendable ([UInt8]) -> Void

    init(
        name: String, maximum: Int, seeds: @escaping @Sendable () -> [[UInt8]],
        body: @escaping @Sendable ([UInt8]) -> Void
    ) {
        self.name = name
        self.maximum = maximum
        self.seeds = seeds
        self.body = body
    }
}

/// Ends the run when something does not hold.
func expect(_ holds: Bool, _ what: @autoclosure () -> String) {
    if !holds { fatalError("does not hold: \(what())") }
}

/// The values in an input, one after the other. After its end they are 0 and empty.
struct Input {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) { rest = bytes[...] }

    var isEmpty: Bool { rest.isEmpty }

    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    mutating func number<Number: FixedWidthInteger>(_ type: Number.Type = Number.self) -> Number {
        var value: UInt64 = 0
        for _ in 0..<(Number.bitWidth / 8) { value = value << 8 | UInt64(byte()) }
        return Number(truncatingIfNeeded: value)
    }

    /// A number from 0 to less than `count`, which is at most 256.
    mutating func index(below count: Int) -> Int { Int(byte()) % max(1, count) }

    mutating func chance() -> Bool { byte() & 1 == 1 }

    /// At most `count` bytes.
    mutating func bytes(_ count: Int) -> [UInt8] {
        let taken = Array(rest.prefix(count))
        rest = rest.dropFirst(count)
        return taken
    }

    /// As many bytes as the next one says.
    mutating func piece() -> [UInt8] { bytes(Int(byte())) }

    /// The same as text, repaired where it is not UTF-8.
    mutating func text() -> String { String(decoding: piece(), as: UTF8.self) }

    /// All that is left.
    mutating func remainder() -> [UInt8] {
        defer { rest = [] }
        return Array(rest)
    }
}

extension [UInt8] {
    /// The input as text; nil where it is not UTF-8.
    var asText: String? { String(validating: self, as: UTF8.self) }
}

/// The bytes of a text, as a seed.
func utf8(_ text: String) -> [UInt8] { Array(text.utf8) }

/// Parts one after the other.
func joined(_ parts: [UInt8]...) -> [UInt8] { parts.flatMap { $0 } }

/// `bytes` behind their count, as `Input.piece` reads them.
func piece(_ bytes: [UInt8]) -> [UInt8] { [UInt8(clamping: bytes.count)] + bytes.prefix(255) }
