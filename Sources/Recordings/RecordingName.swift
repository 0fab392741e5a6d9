// The names of recordings: when and who, in characters that every file system and shell takes.
import Glibc

/// The name of a recording: `20261121T161258Z-Ann.opus`; several of one second by one talker are numbered.
struct RecordingName: Equatable, Comparable {
    /// The most bytes of a talker's name in it.
    static let talkerMax = 80
    static let suffix = ".opus"
    /// While it is written: hidden, and no `.opus`.
    private static let hiddenPrefix = ".", hiddenSuffix = ".part"
    /// `20261121T161258Z`.
    private static let stampLength = 16

    /// The file's name, without a folder.
    let text: String
    /// When it was made, in seconds since 1970.
    let seconds: Int

    /// The name for a burst; `number` is 1 for the first of its second and talker.
    init(_ label: RecordingLabel, number: Int) {
        seconds = min(max(0, label.secondsSince1970), 253_402_300_799)  // Years have four digits.
        let number = number > 1 ? "-\(number)" : ""
        text = Self.stamp(seconds) + "-" + Self.safe(label.talker) + number + Self.suffix
    }

    /// The name of a file that is a recording; nil: it is something else, which nobody touches.
    init?(_ text: String) {
        // By bytes: a combining mark behind the "-" is one character with it.
        let bytes = text.utf8
        guard bytes.suffix(Self.suffix.utf8.count).elementsEqual(Self.suffix.utf8),
            bytes.count > Self.stampLength + Self.suffix.utf8.count + 1,
            bytes.dropFirst(Self.stampLength).first == UInt8(ascii: "-"),
            let seconds = Self.seconds(Array(bytes.prefix(Self.stampLength)))
        else { return nil }
        self.text = text
        self.seconds = seconds
    }

    /// What the file is called while it is written.
    var hidden: String { Self.hiddenPrefix + text + Self.hiddenSuffix }

    /// The name that a file was to get which was not written to its end.
    static func wanted(ofHidden text: String) -> RecordingName? {
        guard text.hasPrefix(hiddenPrefix), text.hasSuffix(hiddenSuffix) else { return nil }
        return RecordingName(String(text.dropFirst(hiddenPrefix.count).dropLast(hiddenSuffix.count)))
    }

    /// The same with a number behind it.
    func numbered(_ number: Int) -> String { text.dropLast(Self.suffix.count) + "-\(number)" + Self.suffix }

    static func < (one: RecordingName, other: RecordingName) -> Bool {
        (one.seconds, one.text) < (other.seconds, other.text)
    }

    /// Letters and digits of any script; whatever else becomes one `_`.
    static func safe(_ name: String) -> String {
        var result = ""
        for scalar in name.unicodeScalars {
            let isSafe = scalar.properties.isAlphabetic || scalar.properties.numericType == .decimal
            guard isSafe || result.last != "_" else { continue }
            let next = isSafe ? String(scalar) : "_"
            guard result.utf8.count + next.utf8.count <= talkerMax else { break }
            result.unicodeScalars.append(contentsOf: next.unicodeScalars)
        }
        while result.last == "_" { result.removeLast() }
        while result.first == "_" { result.removeFirst() }
        return result.isEmpty ? "somebody" : result
    }

    /// The time as RFC 3339 writes it.
    static func date(_ seconds: Int) -> String { format(seconds, "%Y-%m-%dT%H:%M:%SZ") }

    private static func stamp(_ seconds: Int) -> String { format(seconds, "%Y%m%dT%H%M%SZ") }

    private static func format(_ seconds: Int, _ format: String) -> String {
        var time = time_t(seconds)
        var parts = tm()
        guard gmtime_r(&time, &parts) != nil else { return "" }
        var buffer = [CChar](repeating: 0, count: 64)
        let count = strftime(&buffer, buffer.count, format, &parts)
        return String(decoding: buffer[..<count].map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    private static func seconds(_ bytes: [UInt8]) -> Int? {
        guard bytes.count == stampLength, bytes[8] == UInt8(ascii: "T"), bytes[15] == UInt8(ascii: "Z") else {
            return nil
        }
        func number(_ range: Range<Int>) -> Int32? {
            var result: Int32 = 0
            for byte in bytes[range] {
                guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
                result = result * 10 + Int32(byte - UInt8(ascii: "0"))
            }
            return result
        }
        guard let year = number(0..<4), let month = number(4..<6), let day = number(6..<8), let hour = number(9..<11),
            let minute = number(11..<13), let second = number(13..<15)
        else { return nil }
        var parts = tm()
        (parts.tm_year, parts.tm_mon, parts.tm_mday) = (year - 1_900, month - 1, day)
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (hour, minute, second)
        let seconds = Int(timegm(&parts))
        // What is no date (the 31st of February) is another one to timegm(3).
        return seconds >= 0 && stamp(seconds).utf8.elementsEqual(bytes) ? seconds : nil
    }
}
