// pttctl mode: who may talk at once.
import ArgumentParser
import PTTBus
import PushToTalkCore
import Terminal

/// A transmission mode in its form on a command line.
enum ModeName: String, CaseIterable, ExpressibleByArgument {
    case halfDuplex = "half-duplex"
    case fullDuplex = "full-duplex"
    case listenOnly = "listen-only"

    /// The mode.
    var mode: PTTransmissionMode {
        switch self {
        case .halfDuplex: .halfDuplex
        case .fullDuplex: .fullDuplex
        case .listenOnly: .listenOnly
        }
    }

    /// The name of a mode as the bus spells it; that spelling for one that is not known.
    static func text(_ busName: String) -> String {
        allCases.first { $0.mode.busName == busName }?.rawValue ?? busName
    }
}

/// `pttctl mode`.
struct Mode: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Set who may talk at once on the channel; without a mode, show it.",
        discussion: """
            half-duplex: one at a time, as on a radio. full-duplex: you may talk while others do. listen-only: you do \
            not talk. The relay's own mode for the channel applies in addition.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The mode to set.") var mode: ModeName?
    @Flag(help: "Print JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            guard let (_, properties) = await daemon.snapshot.activeChannel else { throw Failure.noChannel }
            if let mode { try await daemon.setTransmissionMode(mode.mode) }
            let now = mode ?? ModeName.allCases.first { $0.mode.busName == properties.transmissionMode }
            let text = now?.rawValue ?? properties.transmissionMode
            if json { return Console.say(try jsonText(["channel": properties.uuid, "mode": text])) }
            // Nothing to tell of what was asked for and done.
            if mode == nil { Console.say(text) }
        }
    }
}
