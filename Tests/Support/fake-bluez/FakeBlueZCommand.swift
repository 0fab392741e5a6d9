// fake-bluez: bluetoothd with virtual buttons, on a given bus, steered by lines on a socket.
import ArgumentParser
import DBus
import FakeBlueZ
import Glibc
import Logging
import Reactor

@main
struct FakeBlueZCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fake-bluez",
        abstract: "A bluetoothd with virtual push-to-talk buttons, for tests and demonstrations.",
        discussion: """
            Owns org.bluez on the bus, with adapter hci0 and the given buttons, which advertise. Commands, one a line,
            on the socket:

              NAME press|release|notify HEX|state|drop|vanish|adv on|off|battery N|forget|abort N|flap
              adapter on|off|add|remove
              daemon start|stop|restart
              quit

            Each is answered by a line "ok …" or "err …"; press, release and notify by "ok t=NANOSECONDS …", the
            monotonic time at which they were done.
            """)

    @Option(help: "The bus: an address such as unix:path=/tmp/bus, or system, or session.")
    var bus = "system"

    @Option(help: "The socket for commands.")
    var socket = "/run/fake-bluez.sock"

    @Option(help: "Milliseconds from the link to usable services.")
    var resolveDelay = 100

    @Flag(help: "Say what goes on.")
    var verbose = false

    @Argument(
        help:
            "NAME=PROFILE[,ADDRESS] with PROFILE one of ptt-z, aina-v2, anytone-elet, td-q2l, microbit, motorola-wm500, itag, unknown."
    )
    var peripherals: [String]

    func validate() throws {
        for (index, argument) in peripherals.enumerated() where Peripheral(argument, index: index + 1) == nil {
            let known = PeripheralProfile.all.map(\.name).joined(separator: ", ")
            throw ValidationError("'\(argument)' is not NAME=PROFILE[,ADDRESS] with PROFILE one of \(known)")
        }
        let names = peripherals.compactMap { $0.split(separator: "=").first }
        guard Set(names).count == names.count else { throw ValidationError("two buttons of the same name") }
        guard (0...60_000).contains(resolveDelay) else { throw ValidationError("--resolve-delay 0…60000") }
    }

    func run() async throws {
        let logger = {
            var logger = Logger(label: "fake-bluez", factory: { StreamLogHandler.standardError(label: $0) })
            logger.logLevel = verbose ? .debug : .warning
            return logger
        }()
        let loop = try EventLoop(name: "fake-bluez")
        let address: DBusAddress = bus == "system" ? .system : bus == "session" ? .session : .address(bus)
        var configuration = FakeBlueZ.Configuration()
        configuration.resolveDelay = .milliseconds(resolveDelay)
        configuration.hearingPause = .seconds(1)
        let fake = FakeBlueZ(
            on: address, loop: loop, logger: logger,
            peripherals: peripherals.enumerated().compactMap { Peripheral($1, index: $0 + 1) },
            configuration: configuration)
        try await fake.start()
        let (quits, quit) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingOldest(1))
        let server = CommandServer(path: socket, loop: loop) { line in
            guard line != "quit" else {
                quit.yield()
                return "ok"
            }
            return await fake.perform(line)
        }
        try await server.start()
        print("fake-bluez: ready")
        fflush(nil)
        for await _ in quits { break }
        // Let the answer to "quit" leave first.
        try await Task.sleep(for: .milliseconds(20))
        await server.stop()
        await fake.stop()
        loop.stop()
    }
}
