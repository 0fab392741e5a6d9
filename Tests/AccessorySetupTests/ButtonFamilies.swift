// Made-up families of talk buttons with further keys: what each tells when its keys are pressed. Key 0 is the talk key.
import BlueZ
import MonotonicTime
import TestSupport

@testable import Accessories
@testable import AccessorySetup

/// How a family tells which keys are held.
enum KeyCode {
    /// One bit a key, in one byte or two.
    case mask(bits: [UInt16], isActiveLow: Bool, isWide: Bool)
    /// The code of the key that was pressed last and is still held, or `idle`.
    case latest(codes: [UInt8], idle: UInt8)
    /// A code for each press and another one for each release.
    case edges(pressed: [UInt8], released: [UInt8])
    /// Two bytes for each press and release: which key, and whether it is down.
    case keyAndState(keys: [UInt8], pressed: UInt8, released: UInt8)
    /// Words for each press and release.
    case words(pressed: [String], released: [String])
    /// One bit a key, as two hexadecimal digits behind a word.
    case maskAsText(word: String, bits: [UInt16])
    /// Keys of an input device.
    case keys([UInt16])
    /// A code for each press, and nothing for the release.
    case clicks([UInt8])
    /// One press tells one code, the next press the other one, and no release is told. Nobody can hold it.
    case latching(UInt8, UInt8)
    /// As many random bytes for each press and release. Nobody can read it.
    case encrypted(Int)

    var count: Int {
        switch self {
        case .mask(let bits, _, _), .maskAsText(_, let bits): bits.count
        case .latest(let codes, _), .clicks(let codes), .edges(let codes, _), .keyAndState(let codes, _, _): codes.count
        case .words(let words, _): words.count
        case .keys(let keys): keys.count
        case .latching, .encrypted: 1
        }
    }

    var name: String {
        switch self {
        case .mask: "mask"
        case .latest: "latest key"
        case .edges: "edges"
        case .keyAndState: "key and state"
        case .words: "words"
        case .maskAsText: "mask as text"
        case .keys: "input device"
        case .clicks: "clicks"
        case .latching: "latching"
        case .encrypted: "encrypted"
        }
    }
}

/// What stands behind the keys in a message.
enum Checksum: CaseIterable {
    case none, sum, xor, crc

    func of(_ bytes: [UInt8]) -> [UInt8] {
        switch self {
        case .none: []
        case .sum: [bytes.reduce(0, &+)]
        case .xor: [bytes.reduce(0x5A, ^)]
        case .crc:
            [
                bytes.reduce(0) { crc, byte in
                    (0..<8).reduce(crc ^ byte) { crc, _ in crc & 0x80 != 0 ? (crc << 1) ^ 0x07 : crc << 1 }
                }
            ]
        }
    }
}

/// A family: its code, and what it puts around it.
struct ButtonFamily {
    var code: KeyCode
    var source: LearningSource
    /// Another characteristic that tells the same.
    var mirror: LearningSource?
    /// The bytes before the keys; the last one tells the kind of the message.
    var header: [UInt8] = []
    /// A level behind the keys, which sinks now and then.
    var hasBattery = false
    /// A count before the keys.
    var hasCounter = false
    /// A count in the upper half of the keys' byte.
    var hasNibbleCounter = false
    var checksum = Checksum.none
    /// A bit of the keys' byte that flips with each repeat.
    var heartbeatBit: UInt8 = 0
    /// How often it repeats what is held, and what is not.
    var heldRepeat: Duration?
    var idleRepeat: Duration?
    /// How often it tells its battery level, in a message of its own.
    var batteryReport: Duration?
    var batteryReportHasSameSize = false
    var bounces = false
    /// Words come in two parts.
    var splits = false
    var lineEnd = ""
    var hasWordCounter = false
    var chatter: [Chatter] = []

    var isClick: Bool { if case .clicks = code { true } else { false } }
    /// Whether the bytes tell of the talk key while another one is held.
    var tellsTogether: Bool {
        switch code {
        case .mask, .edges, .keyAndState, .words, .keys: true
        case .latest, .maskAsText, .clicks, .latching, .encrypted: false
        }
    }
}

// MARK: Making one

extension ButtonFamily {
    static func random(_ random: inout SeededGenerator) -> ButtonFamily {
        let others = [0, 0, 1, 1, 1, 2, 2, 3, 4].randomElement(using: &random) ?? 0
        var family: ButtonFamily
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<36: family = mask(others + 1, &random)
        case 36..<48: family = latest(others + 1, &random)
        case 48..<56: family = edges(others + 1, &random)
        case 56..<66: family = keyAndState(others + 1, &random)
        case 66..<82: family = words(others + 1, &random)
        case 82..<86: family = maskAsText(others + 1, &random)
        case 86..<95: family = inputDevice(others + 1, &random)
        default: family = clicks(others + 1, &random)
        }
        family.addNoise(&random)
        return family
    }

    private static func distinct(_ count: Int, _ values: some Sequence<UInt8>, _ random: inout SeededGenerator)
        -> [UInt8]
    {
        Array(Array(values).shuffled(using: &random).prefix(count))
    }

    private static func characteristic(_ random: inout SeededGenerator) -> LearningSource {
        random.chance(50) ? .own : .shared
    }

    private mutating func addLayout(_ random: inout SeededGenerator) {
        header = random.bytes(Int.random(in: 0...2, using: &random))
        hasBattery = random.chance(30)
        hasCounter = random.chance(25)
        checksum = random.chance(35) ? Checksum.allCases.randomElement(using: &random) ?? .none : .none
        if random.chance(20) {
            batteryReport = .milliseconds(Int.random(in: 2_000...9_000, using: &random))
            batteryReportHasSameSize = !header.isEmpty && random.chance(60)
        }
    }

    private static func mask(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let isWide = random.chance(20)
        let hasNibbleCounter = !isWide && count <= 4 && random.chance(6)
        let places = hasNibbleCounter ? 4 : isWide ? 16 : 8
        let bits = Array((0..<places).map { UInt16(1) << UInt16($0) }.shuffled(using: &random).prefix(count))
        var family = ButtonFamily(
            code: .mask(bits: bits, isActiveLow: !hasNibbleCounter && random.chance(30), isWide: isWide),
            source: characteristic(&random))
        family.addLayout(&random)
        family.hasNibbleCounter = hasNibbleCounter
        if random.chance(30) { family.heldRepeat = .milliseconds(Int.random(in: 100...900, using: &random)) }
        if random.chance(20) { family.idleRepeat = .milliseconds(Int.random(in: 100...1_200, using: &random)) }
        if family.idleRepeat != nil { family.heldRepeat = family.idleRepeat }
        if !isWide, !hasNibbleCounter, family.heldRepeat != nil, random.chance(50) {
            family.heartbeatBit = (0..<8).map { UInt8(1) << $0 }.first { !bits.contains(UInt16($0)) } ?? 0
        }
        return family
    }

    private static func latest(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let codes =
            random.chance(50)
            ? Array(UInt8(1)...UInt8(count)).shuffled(using: &random) : distinct(count, 1...255, &random)
        var family = ButtonFamily(code: .latest(codes: codes, idle: 0), source: characteristic(&random))
        family.addLayout(&random)
        if random.chance(25) { family.heldRepeat = .milliseconds(Int.random(in: 100...900, using: &random)) }
        return family
    }

    private static func edges(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let numbers = distinct(count, 1...127, &random)
        let pressed: [UInt8]
        let released: [UInt8]
        if random.chance(50) {
            (pressed, released) = (numbers, numbers.map { $0 | 0x80 })
        } else {
            let codes = distinct(2 * count, 1...255, &random)
            (pressed, released) = (Array(codes.prefix(count)), Array(codes.suffix(count)))
        }
        var family = ButtonFamily(code: .edges(pressed: pressed, released: released), source: characteristic(&random))
        family.addLayout(&random)
        return family
    }

    private static func keyAndState(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let states = distinct(2, [0, 1, 2, 0x10, 0xFF], &random)
        var family = ButtonFamily(
            code: .keyAndState(keys: distinct(count, 1...60, &random), pressed: states[0], released: states[1]),
            source: characteristic(&random))
        family.addLayout(&random)
        return family
    }

    private static func textSource(_ random: inout SeededGenerator) -> LearningSource {
        let all: [LearningSource] = [.own, .shared, .stream(.serialPort), .serial(LocalDeviceID("/dev/ttyUSB0"))]
        return all.randomElement(using: &random) ?? .own
    }

    private mutating func addText(_ random: inout SeededGenerator) {
        splits = random.chance(30)
        lineEnd = ["", "\r\n", "\0", ";", "\n"].randomElement(using: &random) ?? ""
        if random.chance(20) { batteryReport = .milliseconds(Int.random(in: 2_000...9_000, using: &random)) }
        if random.chance(20) { heldRepeat = .milliseconds(Int.random(in: 300...900, using: &random)) }
    }

    private static func words(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let start = ["", "+", "AT+", "$"].randomElement(using: &random) ?? ""
        let (down, up) =
            [("=P", "=R"), ("1", "0"), (" DOWN", " UP"), (":on", ":off"), ("+", "-")].randomElement(using: &random)
            ?? ("1", "0")
        let names = ["PTT", "SOS", "VOL", "MENU", "GROUP"].map { start + $0 }
        var family = ButtonFamily(
            code: .words(pressed: names.prefix(count).map { $0 + down }, released: names.prefix(count).map { $0 + up }),
            source: textSource(&random))
        family.addText(&random)
        family.hasWordCounter = random.chance(15)
        return family
    }

    private static func maskAsText(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let bits = Array((0..<8).map { UInt16(1) << UInt16($0) }.shuffled(using: &random).prefix(count))
        var family = ButtonFamily(
            code: .maskAsText(word: ["KEYS=", "B:", "+KEY="].randomElement(using: &random) ?? "K=", bits: bits),
            source: textSource(&random))
        family.addText(&random)
        return family
    }

    private static func inputDevice(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        let codes = Array((UInt16(59)...UInt16(200)).shuffled(using: &random).prefix(count))
        return ButtonFamily(code: .keys(codes), source: .keys(LocalDeviceID("/dev/input/event3")))
    }

    private static func clicks(_ count: Int, _ random: inout SeededGenerator) -> ButtonFamily {
        var family = ButtonFamily(code: .clicks(distinct(count, 1...255, &random)), source: characteristic(&random))
        family.header = random.bytes(Int.random(in: 0...2, using: &random))
        family.hasCounter = random.chance(25)
        return family
    }

    private mutating func addNoise(_ random: inout SeededGenerator) {
        bounces = !isClick && random.chance(10)
        if case .characteristic = source, random.chance(8) { mirror = source == .own ? .shared : .own }
        if random.chance(20) {
            let step = UInt8.random(in: 1...3, using: &random)
            chatter.append(
                Chatter(source: .other, pause: .milliseconds(Int.random(in: 60...900, using: &random))) {
                    [UInt8(truncatingIfNeeded: $0) &* step]
                })
        }
        if random.chance(20) {
            let seed = random.next()
            chatter.append(
                Chatter(
                    source: .characteristic(service: "1815", "2a56"),
                    pause: .milliseconds(Int.random(in: 150...2_000, using: &random))
                ) { number in
                    var values = SeededGenerator(seed: seed &+ number)
                    return values.bytes(Int.random(in: 1...4, using: &values))
                })
        }
    }
}

// MARK: One of the family

/// One device of a family: which keys are held, and what it tells of that.
struct FamilyDevice {
    struct Message {
        var delay: Duration
        var source: LearningSource
        var content: LearningObservation.Content
    }

    let family: ButtonFamily
    /// The keys that are held, in the order in which they were pressed.
    private(set) var held: [Int] = []
    private var count: UInt8 = 0
    private var level: UInt8 = 87
    private var beat: UInt8 = 0
    private var random: SeededGenerator

    init(_ family: ButtonFamily, seed: UInt64) {
        self.family = family
        random = SeededGenerator(seed: seed)
    }

    /// A key goes down or comes up.
    mutating func change(_ key: Int, isDown: Bool) -> [Message] {
        held.removeAll { $0 == key }
        if isDown { held.append(key) }
        beat = 0
        if case .keys(let codes) = family.code {
            return [Message(delay: .zero, source: family.source, content: .key(code: codes[key], isDown: isDown))]
        }
        var messages = tell(state(key, isDown: isDown))
        guard family.bounces, isDown else { return messages }
        // The contact opens for an instant. A line is told to its end before the next one.
        var end = messages.last?.delay ?? .zero
        for (isDown, delay) in [(false, 8), (true, 14)] {
            let start = max(.milliseconds(delay), end + .milliseconds(1))
            for message in tell(state(key, isDown: isDown, isBounce: true)) {
                messages.append(
                    Message(delay: message.delay + start, source: message.source, content: message.content))
                end = max(end, message.delay + start)
            }
        }
        return messages
    }

    /// What it tells again by itself.
    mutating func again() -> [Message] {
        beat ^= family.heartbeatBit
        guard let key = held.last else { return tell(state(0, isDown: false)) }
        return tell(state(key, isDown: true))
    }

    mutating func batteryReport() -> [Message] {
        level = max(1, level - 1)
        let bytes: [UInt8]
        switch family.code {
        case .words, .maskAsText: bytes = Array("BAT=\(level)%\(family.lineEnd)".utf8)
        default:
            let size = message([UInt8](repeating: 0, count: stateSize), counts: false).count
            let kind = (family.header.last ?? 0) ^ 0x11
            let body = family.header.dropLast() + [kind, level] + [UInt8](repeating: 0, count: 20)
            bytes = Array(body.prefix(family.batteryReportHasSameSize ? max(size, 2) : size + 2))
        }
        return [Message(delay: .zero, source: family.source, content: .bytes(bytes))]
    }

    private var stateSize: Int {
        switch family.code {
        case .mask(_, _, let isWide): isWide ? 2 : 1
        case .keyAndState: 2
        default: 1
        }
    }

    /// The bytes of the keys; nil: it tells nothing now.
    private mutating func state(_ key: Int, isDown: Bool, isBounce: Bool = false) -> [UInt8]? {
        var down = Set(held)
        if isBounce, !isDown { down.remove(key) }
        switch family.code {
        case .mask(let bits, let isActiveLow, let isWide):
            let mask = down.reduce(UInt16(0)) { $0 | bits[$1] }
            let told = isActiveLow ? ~mask : mask
            var low = UInt8(truncatingIfNeeded: told) ^ beat
            if family.hasNibbleCounter {
                count &+= 1
                low = low & 0x0F | count << 4
            }
            return isWide ? [UInt8(told >> 8), low] : [low]
        case .latest(let codes, let idle):
            return [held.last { down.contains($0) }.map { codes[$0] } ?? idle]
        case .edges(let pressed, let released): return [isDown ? pressed[key] : released[key]]
        case .keyAndState(let keys, let pressed, let released): return [keys[key], isDown ? pressed : released]
        case .clicks(let codes): return isDown ? [codes[key]] : nil
        case .words(let pressed, let released): return Array((isDown ? pressed[key] : released[key]).utf8)
        case .maskAsText(let word, let bits):
            return Array((word + hexadecimal(down.reduce(UInt16(0)) { $0 | bits[$1] }, digits: 2)).utf8)
        case .keys: return nil
        case .latching(let one, let other):
            guard isDown else { return nil }
            count &+= 1
            return [count & 1 == 1 ? one : other]
        case .encrypted(let size): return random.bytes(size)
        }
    }

    /// The message around the keys.
    private mutating func message(_ state: [UInt8], counts: Bool = true) -> [UInt8] {
        var bytes = family.header
        if family.hasCounter {
            if counts { count &+= 1 }
            bytes.append(count)
        }
        bytes += state
        if family.hasBattery {
            if counts, random.chance(5) { level = max(1, level - 1) }
            bytes.append(level)
        }
        return bytes + family.checksum.of(bytes)
    }

    private mutating func tell(_ state: [UInt8]?) -> [Message] {
        guard let state else { return [] }
        var parts: [[UInt8]]
        switch family.code {
        case .words, .maskAsText:
            if family.hasWordCounter { count &+= 1 }
            let end = (family.hasWordCounter ? ",\(1_000 + Int(count))" : "") + family.lineEnd
            let line = state + Array(end.utf8)
            let cut = family.splits && line.count > 1 ? Int.random(in: 1..<line.count, using: &random) : line.count
            parts = [Array(line[..<cut]), Array(line[cut...])].filter { !$0.isEmpty }
        default: parts = [message(state)]
        }
        return parts.enumerated().flatMap { index, bytes in
            ([family.source] + (family.mirror.map { [$0] } ?? [])).map { source in
                Message(delay: .milliseconds(7 * index), source: source, content: .bytes(bytes))
            }
        }
    }
}
