// The types of settings: how each is read, and the error for a value of another type.
import FoundationEssentials

/// Why a value was refused, in the words of `SettingsProblem`.
public struct SettingRefusal: Error {
    /// What is wrong.
    public var message: String
    /// How to do it right.
    public var advice: String

    /// A refusal in words.
    public init(_ message: String, _ advice: String) {
        self.message = message
        self.advice = advice
    }
}

/// A refusal at a place, which may be an element within the value.
struct LocatedRefusal: Error {
    var position: SourcePosition
    var refusal: SettingRefusal
}

/// A kind of value: a string, a duration, one of some words …
///
/// Modules make their own from these with `map`, or from a text with `read`.
public struct SettingType<Value> {
    /// What to write, "an integer from 1 to 65535".
    let expected: String
    /// Stands in for a refused value until the whole file is refused; never seen by the program.
    let placeholder: Value
    let read: (TOMLNode) throws(LocatedRefusal) -> Value

    /// A kind made from this one by `transform`, which may refuse.
    public func map<Other>(
        placeholder: Other, _ transform: @escaping (Value) throws(SettingRefusal) -> Other
    ) -> SettingType<Other> {
        SettingType<Other>(expected: expected, placeholder: placeholder) { node throws(LocatedRefusal) in
            let value = try read(node)
            do throws(SettingRefusal) {
                return try transform(value)
            } catch {
                throw LocatedRefusal(position: node.position, refusal: error)
            }
        }
    }

    static func mismatch(_ node: TOMLNode, _ expected: String) -> LocatedRefusal {
        node.refusal("is \(node.value.kind)", "write \(expected)")
    }
}

extension TOMLNode {
    fileprivate func refusal(_ message: String, _ advice: String) -> LocatedRefusal {
        LocatedRefusal(position: position, refusal: SettingRefusal(message, advice))
    }
}

extension SettingType where Value == String {
    /// A text of at most `lengthMax` bytes in UTF-8, not empty unless allowed.
    public static func string(allowsEmpty: Bool = false, lengthMax: Int = 4096) -> Self {
        let expected = "a text in quotes"
        return Self(expected: expected, placeholder: "") { node throws(LocatedRefusal) in
            guard case .string(let text) = node.value else { throw mismatch(node, expected) }
            guard allowsEmpty || !text.isEmpty else {
                throw node.refusal("is empty", "write \(expected), or remove the key")
            }
            guard text.utf8.count <= lengthMax else {
                throw node.refusal("is \(text.utf8.count) bytes long", "\(lengthMax) are the limit")
            }
            return text
        }
    }

    /// A text.
    public static var string: Self { .string() }

    /// A kind made from texts by `read`; one of which that makes nothing is refused.
    ///
    /// - Parameter problem: What is wrong with such a text, in words that follow it: "is not an address".
    public func read<Other>(
        orSay problem: String, _ advice: String, _ read: @escaping (String) -> Other?
    ) -> SettingType<Other?> {
        map(placeholder: nil) { text throws(SettingRefusal) in
            guard let value = read(text) else { throw SettingRefusal("\"\(text)\" \(problem)", advice) }
            return value
        }
    }
}

extension SettingType where Value == Int {
    /// A whole number within `range`.
    public static func integer(in range: ClosedRange<Int>) -> Self {
        let expected = "an integer from \(range.lowerBound) to \(range.upperBound)"
        return Self(expected: expected, placeholder: range.lowerBound) { node throws(LocatedRefusal) in
            guard case .integer(let wide) = node.value else { throw mismatch(node, expected) }
            guard let value = Int(exactly: wide), range.contains(value) else {
                throw node.refusal("\(wide) is out of range", "write \(expected)")
            }
            return value
        }
    }
}

extension SettingType where Value == Bool {
    /// `true` or `false`.
    public static var boolean: Self {
        Self(expected: "true or false", placeholder: false) { node throws(LocatedRefusal) in
            guard case .boolean(let value) = node.value else { throw mismatch(node, "true or false, without quotes") }
            return value
        }
    }
}

extension SettingType where Value == Duration {
    /// A time such as `"200ms"`, `"1.5s"`, `"2min"` or `"1h"`, within `range`.
    public static func duration(in range: ClosedRange<Duration>) -> Self {
        let expected =
            "a time from \"\(durationText(range.lowerBound))\" to \"\(durationText(range.upperBound))\""
        return Self(expected: expected, placeholder: range.lowerBound) { node throws(LocatedRefusal) in
            guard case .string(let text) = node.value else {
                throw node.refusal(
                    "is \(node.value.kind) without a unit", "write \(expected), with its unit and in quotes")
            }
            guard let duration = parseDuration(text) else {
                throw node.refusal("\"\(text)\" is not a time", "write \(expected); units are ms, s, min and h")
            }
            guard range.contains(duration) else {
                throw node.refusal("\"\(text)\" is out of range", "write \(expected)")
            }
            return duration
        }
    }
}

extension SettingType where Value == UUID {
    /// A UUID in its usual 8-4-4-4-12 form.
    public static var uuid: Self {
        let expected = "a UUID such as \"127face1-cb21-11e5-93d0-0002a5d5c51b\""
        return Self(expected: expected, placeholder: UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))) {
            node throws(LocatedRefusal) in
            guard case .string(let text) = node.value else { throw mismatch(node, expected) }
            guard text.utf8.count == 36, let uuid = UUID(uuidString: text) else {
                throw node.refusal("\"\(text)\" is not a UUID", "write \(expected)")
            }
            return uuid
        }
    }
}

extension SettingType where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
    /// One of the words that are the raw values of an enum.
    public static var oneOf: Self {
        .oneOf(Value.allCases.map { ($0.rawValue, $0) })
    }
}

extension SettingType {
    /// One of the given words.
    ///
    /// - Parameter words: At least one word with what it stands for.
    public static func oneOf(_ words: [(String, Value)]) -> Self {
        let list = words.map { "\"\($0.0)\"" }.joined(separator: ", ")
        let expected = words.count > 1 ? "one of \(list)" : list
        return Self(expected: expected, placeholder: words[0].1) { node throws(LocatedRefusal) in
            guard case .string(let text) = node.value else { throw mismatch(node, expected) }
            guard let found = words.first(where: { $0.0 == text }) else {
                var advice = "write \(expected)"
                if let near = nearestName(to: text, among: words.map(\.0)) {
                    advice = "did you mean \"\(near)\"? It is \(expected)"
                }
                throw node.refusal("\"\(text)\" is not known", advice)
            }
            return found.1
        }
    }

    /// An array whose elements are of kind `element`.
    public static func array<Element>(
        of element: SettingType<Element>, count: ClosedRange<Int> = 0...64
    ) -> SettingType<[Element]> where Value == [Element] {
        let expected = "an array, each element \(element.expected)"
        return SettingType<[Element]>(expected: expected, placeholder: []) { node throws(LocatedRefusal) in
            guard case .array(let nodes) = node.value else {
                throw SettingType<[Element]>.mismatch(node, "\(expected), in [ ]")
            }
            guard count.contains(nodes.count) else {
                throw node.refusal(
                    "has \(nodes.count) elements", "write \(count.lowerBound) to \(count.upperBound) of them")
            }
            var elements: [Element] = []
            for node in nodes { elements.append(try element.read(node)) }
            return elements
        }
    }
}

extension SettingType {
    /// One value of kind `element`, or several in an array.
    public static func oneOrMore<Element>(
        of element: SettingType<Element>, countMax: Int = 64
    ) -> SettingType<[Element]> where Value == [Element] {
        let array = SettingType<[Element]>.array(of: element, count: 1...countMax)
        let expected = "\(element.expected), or several in [ ]"
        return SettingType<[Element]>(expected: expected, placeholder: []) {
            node throws(LocatedRefusal) in
            if case .array = node.value { return try array.read(node) }
            return [try element.read(node)]
        }
    }
}

/// A duration from a number and a unit (`ms`, `s`, `min`, `h`), nil when the text is anything else.
///
/// At most nine digits before and three after the point, so that it is exact.
public func parseDuration(_ text: String) -> Duration? {
    let bytes = Array(text.utf8)
    let numberEnd = bytes.firstIndex {
        !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) && $0 != UInt8(ascii: ".")
    }
    guard let numberEnd else { return nil }
    let parts = bytes[..<numberEnd].split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    guard (1...2).contains(parts.count), (1...9).contains(parts[0].count),
        let whole = Int64(String(decoding: parts[0], as: UTF8.self))
    else { return nil }
    var thousandths: Int64 = 0
    if parts.count == 2 {
        guard (1...3).contains(parts[1].count) else { return nil }
        let padded = Array(parts[1]) + [UInt8](repeating: UInt8(ascii: "0"), count: 3 - parts[1].count)
        guard let fraction = Int64(String(decoding: padded, as: UTF8.self)) else { return nil }
        thousandths = fraction
    }
    let unitMicroseconds: Int64
    switch String(decoding: bytes[numberEnd...], as: UTF8.self) {
    case "ms": unitMicroseconds = 1_000
    case "s": unitMicroseconds = 1_000_000
    case "min": unitMicroseconds = 60_000_000
    case "h": unitMicroseconds = 3_600_000_000
    default: return nil
    }
    // At most 1e9 hours are 3.6e18 µs: within Int64.
    return .microseconds(whole * unitMicroseconds + thousandths * (unitMicroseconds / 1_000))
}

/// The duration in the notation of settings files, exact to the millisecond: "200ms", "1.5s", "2min".
public func durationText(_ duration: Duration) -> String {
    let (seconds, attoseconds) = duration.components
    let milliseconds = seconds * 1_000 + attoseconds / 1_000_000_000_000_000
    if milliseconds % 60_000 == 0, milliseconds >= 60_000 { return "\(milliseconds / 60_000)min" }
    if milliseconds % 1_000 == 0, milliseconds != 0 { return "\(milliseconds / 1_000)s" }
    return "\(milliseconds)ms"
}
