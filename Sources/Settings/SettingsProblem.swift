// What is wrong in a settings file, where, and what to write instead.
import Files

/// A place in a text file, as editors count: both from 1, columns in Unicode scalars.
public struct SourcePosition: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The line, from 1.
    public var line: Int
    /// The column, from 1.
    public var column: Int

    /// The place at `line` and `column`.
    public init(line: Int, column: Int) {
        self.line = line
        self.column = column
    }

    /// "line:column".
    public var description: String { "\(line):\(column)" }

    /// Whether `lhs` comes first in the file.
    public static func < (lhs: Self, rhs: Self) -> Bool { (lhs.line, lhs.column) < (rhs.line, rhs.column) }
}

/// One thing that is wrong in a settings file.
public struct SettingsProblem: Error, Hashable, Sendable, CustomStringConvertible {
    /// The file's name as the user gave it.
    public var file: String
    /// Where; nil when the file as a whole is meant (it cannot be read, say).
    public var position: SourcePosition?
    /// The dotted path of the key, `channel.relay`; empty where no key is known.
    public var key: String
    /// What is wrong.
    public var message: String
    /// How to do it right; empty when the message says it all.
    public var advice: String
    /// Why the file cannot be read; nil when it can.
    public var cause: FileError?

    /// A problem at `position` of `file`.
    public init(
        file: String, position: SourcePosition? = nil, key: String = "", message: String, advice: String = "",
        cause: FileError? = nil
    ) {
        self.file = file
        self.position = position
        self.key = key
        self.message = message
        self.advice = advice
        self.cause = cause
    }

    /// "file:line:column: key: what is wrong; how to do it right", the shape editors and compilers use.
    public var description: String {
        var text = file
        if let position { text += ":\(position)" }
        if !key.isEmpty { text += ": \(key)" }
        text += ": \(message)"
        if !advice.isEmpty { text += "; \(advice)" }
        return text
    }
}

/// A settings file that was refused, with everything that is wrong in it.
public struct SettingsError: Error, Equatable, Sendable, CustomStringConvertible {
    /// At most this many problems are reported at once.
    public static let problemsReported = 20

    /// The problems, in the order of the file; at least one.
    public let problems: [SettingsProblem]
    /// Problems found beyond `problemsReported`.
    public let unreported: Int

    /// An error of the given problems, which are put in the order of the file.
    public init(_ problems: [SettingsProblem]) {
        let sorted = problems.sorted { lhs, rhs in
            (lhs.position ?? SourcePosition(line: 0, column: 0)) < (rhs.position ?? SourcePosition(line: 0, column: 0))
        }
        self.problems = Array(sorted.prefix(Self.problemsReported))
        unreported = max(0, sorted.count - Self.problemsReported)
    }

    /// Whether the file may be read later although nobody mends it: see `FileError.mayPass`.
    public var mayPass: Bool { problems.contains { $0.cause?.mayPass == true } }

    /// Whether there is no such file.
    public var isMissingFile: Bool { problems.contains { $0.cause?.cause == .missing } }

    /// Whether what is there can never be read as settings: not because of the file system or of permissions.
    public var isDamage: Bool { problems.allSatisfy { $0.cause?.isDamage ?? true } }

    /// One line a problem.
    public var description: String {
        var lines = problems.map(\.description)
        if unreported > 0 { lines.append("… and \(unreported) more") }
        return lines.joined(separator: "\n")
    }
}
