// pttctl replay: the last message once more.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl replay`.
struct Replay: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Play the last message of somebody else again.",
        discussion: "Asked for again while it plays, it plays the one before. Whatever is said meanwhile ends it.")

    @OptionGroup var options: BusOptions

    func run() async throws {
        try await options.withDaemon { daemon in
            guard await daemon.snapshot.activeChannel != nil else { throw Failure.noChannel }
            try await daemon.replayLast()
        }
    }
}
