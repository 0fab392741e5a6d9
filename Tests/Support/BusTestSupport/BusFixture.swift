// A private bus, a loop, and connections on it.
import DBus
import Logging
import Reactor

/// A private bus and an event loop for one test.
public final class BusFixture: Sendable {
    /// The bus.
    public let bus: PrivateBus
    /// The loop.
    public let loop: EventLoop
    /// A logger that says only what is wrong.
    public let logger: Logger

    /// A running bus and loop.
    public init() throws {
        bus = try PrivateBus()
        loop = try EventLoop(name: "test")
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        self.logger = logger
    }

    /// A connection to the bus, connected.
    public func connect() async throws -> DBusConnection {
        let connection = DBusConnection(to: .address(bus.address), on: loop, logger: logger)
        try await connection.connect()
        return connection
    }
}

/// Runs a test on a bus of its own and ends both the connections given to `body` and the loop afterwards.
public func withBus(_ body: (BusFixture) async throws -> Void) async throws {
    let fixture = try BusFixture()
    do {
        try await body(fixture)
    } catch {
        fixture.loop.stop()
        throw error
    }
    fixture.loop.stop()
}

extension DBusConnection {
    /// Writes one property of another's object.
    public func setProperty(
        _ name: String, _ value: DBusValue, of interface: String, destination: String, path: DBusObjectPath
    ) async throws(DBusError) {
        try await call(
            destination: destination, path: path, interface: "org.freedesktop.DBus.Properties", method: "Set",
            arguments: [.string(interface), .string(name), .variant(value)])
    }
}
