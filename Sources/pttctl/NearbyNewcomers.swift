// pttctl nearby waiting, admit and refuse: who may join a channel that asks its creator.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl nearby waiting`.
struct NearbyWaiting: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "waiting", abstract: "Show who is waiting to be admitted to channels of this machine.")

    @OptionGroup var options: BusOptions
    @Flag(help: "Print those who wait as a JSON array, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            try await daemon.refresh()
            let waiting = await daemon.snapshot.nearby.newcomers
            if json { return Console.say(try jsonText(waiting)) }
            for one in waiting {
                Console.say("\(one.name.plain(limit: 128))\t\(one.channelName.plain(limit: 128))\t\(one.id)")
            }
            if waiting.isEmpty { Console.complain("pttctl: nobody is waiting") }
        }
    }
}

/// `pttctl nearby admit`.
struct NearbyAdmit: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "admit", abstract: "Admit a waiting person to a channel of this machine.")

    @OptionGroup var options: BusOptions
    @Argument(help: "The name or Id, as 'pttctl nearby waiting' shows them; not needed if only one is waiting.")
    var name: String?

    func run() async throws { try await NearbyDecision.run(true, name, options) }
}

/// `pttctl nearby refuse`.
struct NearbyRefuse: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "refuse", abstract: "Refuse a waiting person.")

    @OptionGroup var options: BusOptions
    @Argument(help: "The name or Id, as 'pttctl nearby waiting' shows them; not needed if only one is waiting.")
    var name: String?

    func run() async throws { try await NearbyDecision.run(false, name, options) }
}

/// The answer to somebody who waits.
enum NearbyDecision {
    static func run(_ isAdmitted: Bool, _ name: String?, _ options: BusOptions) async throws {
        try await options.withDaemon { daemon in
            try await daemon.refresh()
            let newcomer = try match(name, await daemon.snapshot.nearby.newcomers)
            try await daemon.decideNearby(isAdmitted, about: newcomer.id)
            Console.say(
                "\(isAdmitted ? "admitted" : "refused") \(newcomer.name.plain(limit: 128)) to "
                    + newcomer.channelName.plain(limit: 128))
        }
    }

    /// Finds the person that `name` refers to.
    ///
    /// - Throws: `Failure` when that is nobody, or one of several.
    static func match(_ name: String?, _ waiting: [NearbyNewcomerDescription]) throws -> NearbyNewcomerDescription {
        guard !waiting.isEmpty else { throw Failure("nobody is waiting to be admitted") }
        if let name, let one = waiting.first(where: { $0.id == name }) { return one }
        let meant = name.map { name in waiting.filter { $0.name == name } } ?? waiting
        if meant.count == 1 { return meant[0] }
        let list = (meant.isEmpty ? waiting : meant).map { "\($0.id) (\($0.name.plain(limit: 64)))" }
            .joined(separator: ", ")
        throw Failure(
            meant.isEmpty
                ? "nobody with this name is waiting; these are: \(list)"
                : "\(meant.count) are waiting; give the Id of one: \(list)")
    }
}
