// One prompt through speech-dispatcher: the lines of SSIP, its protocol. Pure.
import PlainText

/// The dialogue in which speech-dispatcher is asked to speak one text, and tells when it was heard. What it answers is not trusted.
struct DispatcherDialogue {
    /// The longest line that it may send.
    static let lineMax = 1_024
    /// The most lines that it may send for one prompt.
    static let linesMax = 64

    /// What follows from an answer.
    enum Action: Equatable {
        case send(String)
        /// The text has been heard, or something else has silenced it.
        case heard
        /// It answered this instead of what was expected.
        case failed(answer: String)
    }

    /// A command, and the first digits of the answer that lets the next one follow.
    private struct Step {
        let command: String
        let answer: String
    }

    /// What silences this connection's text, and ends the connection.
    static let cancelling = "CANCEL self\r\nQUIT\r\n"
    /// What ends the connection.
    static let ending = "QUIT\r\n"

    private let steps: [Step]
    private var step = 0
    private var line: [UInt8] = []
    private var lines = 0
    private var isOver = false

    init(_ text: String, _ language: PromptLanguage) {
        // A line that begins with a dot has another one before it, and a dot alone ends the text.
        let escaped = text.hasPrefix(".") ? ".\(text)" : text
        steps = [
            Step(command: "SET self CLIENT_NAME pttd:pttd:prompts", answer: "2"),
            Step(command: "SET self LANGUAGE \(language.rawValue)", answer: "2"),
            Step(command: "SET self PRIORITY message", answer: "2"),
            Step(command: "SET self NOTIFICATION END on", answer: "2"),
            Step(command: "SET self NOTIFICATION CANCEL on", answer: "2"),
            Step(command: "SPEAK", answer: "230"),
            Step(command: "\(escaped)\r\n.", answer: "225"),
        ]
    }

    /// The connection is there. Returns what is sent first.
    var beginning: String { "\(steps[0].command)\r\n" }

    /// These bytes came.
    mutating func received(_ bytes: some Sequence<UInt8>) -> [Action] {
        var actions: [Action] = []
        for byte in bytes where !isOver {
            if byte == UInt8(ascii: "\n") {
                if line.last == UInt8(ascii: "\r") { line.removeLast() }
                if let action = take(line) { actions.append(action) }
                line.removeAll(keepingCapacity: true)
            } else if line.count < Self.lineMax {
                line.append(byte)
            } else {
                actions.append(failed("a line of more than \(Self.lineMax) bytes"))
            }
        }
        return actions
    }

    private mutating func take(_ line: [UInt8]) -> Action? {
        lines += 1
        guard lines <= Self.linesMax else { return failed("more than \(Self.linesMax) lines") }
        let text = String(decoding: line, as: UTF8.self)
        guard line.count >= 4, line[..<3].allSatisfy({ (0x30...0x39).contains($0) }) else { return failed(text) }
        // "225-21", "225 OK": the last line of an answer has a space behind the number.
        guard line[3] == UInt8(ascii: " ") else { return line[3] == UInt8(ascii: "-") ? nil : failed(text) }
        if line[0] == UInt8(ascii: "7") {
            // An event: 702 end, 703 cancelled. It may come before the answer that the text is queued.
            guard text.hasPrefix("702") || text.hasPrefix("703"), step + 1 >= steps.count else { return nil }
            isOver = true
            return .heard
        }
        guard step < steps.count else { return nil }
        guard text.hasPrefix(steps[step].answer) else { return failed(text) }
        step += 1
        return step < steps.count ? .send("\(steps[step].command)\r\n") : nil
    }

    private mutating func failed(_ answer: String) -> Action {
        isOver = true
        return .failed(answer: String(answer.unicodeScalars.prefix(200).map { $0.isHidden ? " " : Character($0) }))
    }
}
