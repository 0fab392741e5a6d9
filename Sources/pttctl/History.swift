// pttctl history: the messages that the relay keeps.
import ArgumentParser
import Glibc
import PTTBus
import Terminal

/// `pttctl history`.
struct History: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the messages of the channel that the relay keeps, the newest first.",
        discussion:
            "'pttctl replay NUMBER' plays one. The relay's configuration sets how many are kept, and for how long.")

    @OptionGroup var options: BusOptions
    @Flag(help: "Print JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            guard await daemon.snapshot.activeChannel != nil else { throw Failure.noChannel }
            let messages = try await daemon.keptMessages()
            if json { return Console.say(try jsonText(messages)) }
            if messages.isEmpty { Console.say("The relay keeps no message at the moment.") }
            for (index, message) in messages.enumerated() { Console.say(Self.line(index + 1, message)) }
        }
    }

    /// " 1  14:03:09    4.2 s  Ada", with what else there is to know of it.
    static func line(_ number: Int, _ message: KeptMessage) -> String {
        ([padded("\(number)", 2)] + words(message)).joined(separator: "  ")
    }

    /// When, for how long and who: "14:03:09", "  4.2 s", "Ada", and what else there is to know of it.
    static func words(_ message: KeptMessage) -> [String] {
        let tenths = (UInt64(message.milliseconds) + 50) / 100
        var words = [
            Monitor.clock(at: time_t(message.beganAt / 1_000)), padded("\(tenths / 10).\(tenths % 10) s", 7),
            message.talker.plain(limit: 64),
        ]
        if message.isOwn { words.append("(this device)") }
        if message.isGoingOn { words.append("(still going on)") }
        if !message.canBeOpened { words.append("(encrypted before this device joined)") }
        return words
    }

    private static func padded(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }
}
