// Shell completion for accessories and controls: asks the daemon, for a moment at most.
import ArgumentParser
import PTTBus

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
        safe(await DaemonClient.ask(within: timeout) { $0.snapshot.accessories.values.map(\.id) } ?? [])
    }

    static func controls(after words: [String]) async -> [String] {
        let own = await DaemonClient.ask(within: timeout) { daemon -> [String] in
            let fitting = daemon.snapshot.accessories.values.filter { words.contains($0.id) || words.contains($0.name) }
            return fitting.flatMap(\.bindings.keys)
        }
        guard let own, !own.isEmpty else { return controls }
        return safe(Array(Set(own)))
    }

    static func profiles() async -> [String] {
        safe(
            await DaemonClient.ask(within: timeout) { try await $0.profiles().filter { $0.refusal == nil }.map(\.id) }
                ?? [])
    }

    static func channels() async -> [String] {
        safe(await DaemonClient.ask(within: timeout) { $0.snapshot.manager.channels } ?? []) + ["up", "down"]
    }

    /// Only what no shell takes for more than letters: the words may come from the air.
    static func safe(_ words: [String]) -> [String] {
        words.filter { !$0.isEmpty && $0.utf8.count <= 64 && $0.first != "-" && $0.utf8.allSatisfy(\.isPlainInShells) }
            .sorted()
    }
}
