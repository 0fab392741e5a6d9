// pttctl wait-quiet: waits until a restart of pttd would not cut anybody off.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl wait-quiet`.
struct WaitQuiet: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wait-quiet",
        abstract: "Wait until nobody talks and no button is held; for scripts that restart pttd.",
        discussion: """
            The exit status is 0 as soon as nobody is talking on the channel, no accessory is held and no press waits \
            for the floor, or when pttd ends meanwhile. It is 1 when somebody still talks at the end of the time. It \
            does not prevent talking afterwards. Packages use it before an upgrade restarts pttd.
            """)

    @OptionGroup var options: BusOptions
    @Option(name: .customLong("for"), help: "How many seconds to wait at most, 0 to 3600.") var seconds = 10.0

    func validate() throws {
        guard seconds >= 0, seconds <= 3_600 else {
            throw ValidationError("--for takes seconds, 0 to 3600.")
        }
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            // nil: the time is over.
            let (events, feed) = AsyncStream.makeStream(
                of: DaemonClient.Event?.self, bufferingPolicy: .bufferingNewest(1_024))
            try await daemon.watch { feed.yield($0) }
            let limit = Task {
                try await Task.sleep(for: .seconds(seconds))
                feed.yield(nil)
            }
            defer { limit.cancel() }
            guard var busy = Self.busy(await daemon.snapshot) else { return }
            for await event in events {
                switch event {
                case .changed(_, let new):
                    guard let still = Self.busy(new) else { return }
                    busy = still
                case .running(false): return
                case .running(true), .transmissionFailed, .accessory: break
                case nil: throw Failure("not quiet within \(Self.text(seconds)) s: \(busy)")
                }
            }
        }
    }

    /// What a restart would cut off; nil: nothing.
    static func busy(_ snapshot: DaemonSnapshot) -> String? {
        for channel in snapshot.channels.values
        where channel.transmitting || channel.queuePosition > 0 || !channel.speakers.isEmpty {
            return "\(channel.name): \(Status.doing(channel))"
        }
        let held = snapshot.accessories.values.first(where: \.held)
        return held.map { "\($0.name.isEmpty ? $0.address : $0.name) is held" }
    }

    private static func text(_ seconds: Double) -> String {
        seconds == seconds.rounded() ? "\(Int(seconds))" : "\(seconds)"
    }
}
