// pttctl replay: plays the last message again, or one that the relay keeps.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl replay`.
struct Replay: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Play the last message of somebody else again.",
        discussion: """
            Repeated while it plays, it plays the previous message. Speech of others ends it. With --relay, or a \
            number of 'pttctl history', it plays a message that the relay keeps, even if this device did not hear it; \
            it prints the time, the length and the talker.
            """)

    @OptionGroup var options: BusOptions
    @Flag(help: "Play the last message of somebody else that the relay keeps.") var relay = false
    @Argument(help: "The number of a message in 'pttctl history'.") var number: Int?

    func validate() throws {
        if let number, number < 1 { throw ValidationError("Give a number of 'pttctl history', from 1.") }
        if relay, let number {
            throw ValidationError(
                "--relay plays the relay's last message, and \(number) names another; leave one of them out.")
        }
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            guard await daemon.snapshot.activeChannel != nil else { throw Failure.noChannel }
            guard relay || number != nil else { return try await daemon.replayLast() }
            let message = try Self.choose(number, of: try await daemon.keptMessages())
            try await daemon.replayKept(message.id)
            Console.say(History.words(message).joined(separator: "  "))
        }
    }

    /// The message of that number; without one, the newest that there is something to hear of.
    static func choose(_ number: Int?, of messages: [KeptMessage]) throws -> KeptMessage {
        guard let number else {
            guard let newest = messages.first(where: { !$0.isOwn && !$0.isGoingOn && $0.canBeOpened }) else {
                throw Failure("the relay keeps no message of somebody else that can be played; see 'pttctl history'")
            }
            return newest
        }
        guard messages.indices.contains(number - 1) else {
            throw Failure(
                messages.isEmpty
                    ? "the relay keeps no message at the moment"
                    : "there is no message \(number); 'pttctl history' lists \(messages.count)")
        }
        return messages[number - 1]
    }
}
