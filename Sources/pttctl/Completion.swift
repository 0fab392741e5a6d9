// Shell completion for accessories and controls: asks the daemon, for a moment at most.
import ArgumentParser
import Logging
import Logs
import PTTBus
import Reactor

extension CompletionKind {
    /// The ids of the accessories.
    static var accessories: CompletionKind { .custom { _, _, _ in await Completion.accessories() } }
    /// The controls of the accessory that is named before.
    static var controls: CompletionKind { .custom { words, _, _ in await Completion.controls(after: words) } }
}

/// Words for the shells.
enum Completion {
    /// How long the daemon may take; a shell that waits longer is worse than one that offers nothing.
    static let timeout = Duration.milliseconds(700)

    /// The controls that profiles know, for when the accessory's own are not known.
    static let controls = [
        "ptt", "ptt2", "emergency", "soft1", "soft2", "call", "channel-up", "channel-down", "volume-up", "volume-down",
    ]

    static func accessories() async -> [String] {
        safe(await ask { $0.snapshot.accessories.values.map(\.id) } ?? [])
    }

    static func controls(after words: [String]) async -> [String] {
        let own = await ask { daemon -> [String] in
            let fitting = daemon.snapshot.accessories.values.filter { words.contains($0.id) || words.contains($0.name) }
            return fitting.flatMap(\.bindings.keys)
        }
        guard let own, !own.isEmpty else { return controls }
        return safe(Array(Set(own)))
    }

    static func profiles() async -> [String] {
        safe(await ask { try await $0.profiles().filter { $0.refusal == nil }.map(\.id) } ?? [])
    }

    static func channels() async -> [String] {
        safe(await ask { $0.snapshot.manager.channels } ?? []) + ["up", "down"]
    }

    /// Only what no shell takes for more than letters: the words may come from the air.
    static func safe(_ words: [String]) -> [String] {
        words.filter { !$0.isEmpty && $0.utf8.count <= 64 && $0.first != "-" && $0.utf8.allSatisfy(\.isPlainInShells) }
            .sorted()
    }

    /// What `body` answers with the daemon; nil when there is none, or it takes too long.
    private static func ask<T: Sendable>(
        _ body: @escaping @Sendable (isolated DaemonClient) async throws -> T
    ) async -> T? {
        let (answers, feed) = AsyncStream.makeStream(of: T?.self, bufferingPolicy: .bufferingOldest(1))
        let asking = Task {
            let logger = Logger(label: "pttctl") { LineLogHandler(label: $0, level: .critical) }
            guard let loop = try? EventLoop(name: "pttctl"),
                let daemon = try? await DaemonClient.find(loop: loop, logger: logger)
            else {
                feed.yield(nil)
                return
            }
            feed.yield(try? await body(daemon))
        }
        let clock = Task {
            try? await Task.sleep(for: timeout)
            feed.yield(nil)
        }
        defer {
            asking.cancel()
            clock.cancel()
        }
        for await answer in answers { return answer }
        return nil
    }
}
