// Every file in Traces: what an accessory notified, and what must follow. A trace captured in the field is a test.
//
//     profile ptt-z            the shipped profile; optionally 'gesture toggle', 'debounce MS', 'minimum-hold MS', 'hybrid-hold MS'
//     0 01                     at 0 ms the first input notified the byte 01; "text" in quotes is ASCII
//     10 b: 02                 the input called b
//     20 read 01               a value that was read, not notified
//     30 repeat 10 every 1: 01 ten notifications, 1 ms apart
//     40 lost                  the link is gone; also 'ended-by-system'
//     50 key KEY_F13 down      a key of an input device; also by its number, 'key 183 up'
//
//     0 down ptt               after the blank line, what must happen: down, up, begin, end, battery, ignored
import FoundationEssentials
import LinuxInput
import MonotonicTime
import Settings
import Testing
import Vocabulary

@testable import Accessories

struct TraceError: Error, CustomStringConvertible {
    var description: String
}

/// A trace file, read.
struct Trace {
    var profile: AccessoryProfile
    var gesture: Gesture?
    var events: [(milliseconds: Int, event: ControlsStateMachine.Event)] = []
    var expected: [String] = []

    static let directory = String(#filePath.prefix(upTo: #filePath.lastIndex(of: "/")!)) + "/Traces"

    init(name: String) throws {
        let text = String(decoding: try SettingsFile.contents(of: "\(Self.directory)/\(name)"), as: UTF8.self)
        let library = ProfileLibrary.load(directory: nil).library
        var profile: AccessoryProfile?
        var gesture: Gesture?
        var inExpected = false
        var events: [(Int, ControlsStateMachine.Event)] = []
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) where !line.hasPrefix("#") {
            let words = line.split(separator: " ").map(String.init)
            guard let first = words.first else {
                if !events.isEmpty { inExpected = true }
                continue
            }
            if inExpected {
                expected.append(line.trimmingSuffix(" "))
                continue
            }
            switch first {
            case "profile": profile = library[words[1]]
            case "gesture": gesture = Gesture(rawValue: words[1])
            case "debounce": profile?.timing.debounce = .milliseconds(Int(words[1])!)
            case "hybrid-hold": profile?.timing.hybridHold = .milliseconds(Int(words[1])!)
            case "minimum-hold": profile?.timing.minimumHold = .milliseconds(Int(words[1])!)
            default:
                guard let profile, let time = Int(first) else { throw TraceError(description: "\(name): \(line)") }
                for (offset, event) in try Self.events(words.dropFirst(), profile) {
                    events.append((time + offset, event))
                }
            }
        }
        guard let profile else { throw TraceError(description: "\(name): no such profile") }
        self.profile = profile
        self.gesture = gesture
        self.events = events
    }

    private static func events(
        _ words: ArraySlice<String>, _ profile: AccessoryProfile
    ) throws -> [(Int, ControlsStateMachine.Event)] {
        switch words.first {
        case "lost": return [(0, .lost)]
        case "ended-by-system": return [(0, .endedBySystem)]
        case "read": return [(0, .staleValue(input: 0, bytes: try bytes(words.dropFirst())))]
        case "key":
            let parts = Array(words)
            guard parts.count == 3, let code = InputKey.code(named: parts[1]) ?? UInt16(parts[1]),
                ["down", "up"].contains(parts[2])
            else { throw TraceError(description: "key NAME down|up") }
            return [(0, .key(code: code, isDown: parts[2] == "down"))]
        case "repeat":
            let parts = Array(words)
            guard parts.count > 4, let count = Int(parts[1]), let every = Int(parts[3].dropLast()) else {
                throw TraceError(description: "repeat COUNT every MS: BYTES")
            }
            let value = try bytes(parts[4...])
            return (0..<count).map { ($0 * every, .value(input: 0, bytes: value)) }
        case let name? where name.hasSuffix(":"):
            guard let input = profile.inputs.firstIndex(where: { $0.name == name.dropLast() }) else {
                throw TraceError(description: "no input \(name)")
            }
            return [(0, .value(input: input, bytes: try bytes(words.dropFirst())))]
        default:
            return [(0, .value(input: 0, bytes: try bytes(words)))]
        }
    }

    private static func bytes(_ words: ArraySlice<String>) throws -> [UInt8] {
        try words.flatMap { word -> [UInt8] in
            if word.hasPrefix("\""), word.hasSuffix("\"") { return Array(word.dropFirst().dropLast().utf8) }
            guard let byte = UInt8(word, radix: 16) else { throw TraceError(description: "no byte: \(word)") }
            return [byte]
        }
    }

    /// What happens, in the words of the file. Deadlines that fall between events are run at their time.
    func run() -> [String] {
        // Here only its edges count; what an emergency is has tests of its own.
        var machine = ControlsStateMachine(profile, gesture: gesture, bindings: [.emergency: .none])
        var happened: [String] = []
        func note(_ actions: [ControlsStateMachine.Action], _ now: Instant) {
            let time = now.nanoseconds / 1_000_000
            for action in actions {
                switch action {
                case .control(let control, let isDown):
                    happened.append("\(time) \(isDown ? "down" : "up") \(control.rawValue)")
                case .begin(let control): happened.append("\(time) begin \(control.rawValue)")
                case .end(let control): happened.append("\(time) end \(control.rawValue)")
                case .fire(let control): happened.append("\(time) fire \(control.rawValue)")
                case .emergency(let control, let isActive):
                    happened.append("\(time) emergency \(control.rawValue) \(isActive ? "on" : "off")")
                case .battery(let level): happened.append("\(time) battery \(level)")
                case .ignored(_, let count): happened.append("\(time) ignored \(count)")
                }
            }
        }
        func runDeadlines(before limit: Instant?) {
            while let deadline = machine.nextDeadline, limit.map({ deadline < $0 }) ?? true {
                note(machine.handle(.deadline, at: deadline), deadline)
            }
        }
        for (milliseconds, event) in events {
            let now = Instant.zero + .milliseconds(milliseconds)
            runDeadlines(before: now)
            note(machine.handle(event, at: now), now)
        }
        runDeadlines(before: nil)
        return happened
    }
}

extension Substring {
    fileprivate func trimmingSuffix(_ character: Character) -> String {
        var text = self
        while text.last == character { text.removeLast() }
        return String(text)
    }
}

private let traceNames =
    (try? FileManager.default.contentsOfDirectory(atPath: Trace.directory))?
    .filter { $0.hasSuffix(".trace") }.sorted() ?? []

@Suite struct TraceTests {
    @Test func thereAreTraces() { #expect(traceNames.count >= 50) }

    @Test(arguments: traceNames) func theTraceGivesWhatItSays(name: String) throws {
        let trace = try Trace(name: name)
        #expect(!trace.expected.isEmpty)
        #expect(trace.run() == trace.expected)
    }

    @Test func everyShippedProfileThatCanPressHasATrace() throws {
        let covered = Set(try traceNames.map { try Trace(name: $0).profile.id })
        let profiles = ProfileLibrary.load(directory: nil).library.profiles
        #expect(covered == Set(profiles.filter { !$0.inputs.isEmpty }.map(\.id)))
        #expect(profiles.allSatisfy { !$0.inputs.isEmpty || $0.refusal != nil })
    }
}
