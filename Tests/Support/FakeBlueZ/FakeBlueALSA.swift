// org.bluealsa with the hands-free commands of one headset.
import DBus
import Glibc
import Logging
import Reactor

/// A bluealsa(8) on some bus, with the terminal of one headset.
public actor FakeBlueALSA {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let connection: DBusConnection
    private let path: DBusObjectPath
    private var headset: Int32?

    /// A service that is not there yet.
    ///
    /// - Parameter headset: The object, such as `/org/bluealsa/hci0/dev_…/rfcomm`.
    public init(on address: DBusAddress, loop: EventLoop, logger: Logger, headset: DBusObjectPath) {
        self.loop = loop
        path = headset
        connection = DBusConnection(to: address, on: loop, logger: logger, reconnects: false)
    }

    /// Takes the name.
    ///
    /// - Parameter profiles: What it says to run with; nil: it does not say.
    /// - Parameter hasHeadset: Whether it has got the headset's hands-free connection.
    public func start(profiles: [String]? = nil, hasHeadset: Bool = true) async throws {
        try await connection.connect()
        if let profiles {
            let manager = DBusInterface("org.bluealsa.Manager1", properties: [.init("Profiles", .array(.string))])
            let export = try DBusExport(manager, properties: ["Profiles": .strings(profiles)])
            try await connection.export([export], at: "/org/bluealsa")
        }
        if hasHeadset {
            let terminal = DBusInterface(
                "org.bluealsa.RFCOMM1", methods: [.init("Open", out: [.init("fd", .unixDescriptor)])])
            let export = try DBusExport(
                terminal, methods: ["Open": { [weak self] _ in try await self?.open() ?? [] }])
            try await connection.export([export], at: path)
        }
        try await connection.requestName("org.bluealsa")
    }

    /// Leaves the bus.
    public func stop() async {
        hangUp()
        await connection.close()
    }

    private func open() throws -> [DBusValue] {
        guard headset == nil else {
            throw DBusErrorReply("org.freedesktop.DBus.Error.Failed", "Device or resource busy")
        }
        var pair: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &pair) == 0 else {
            throw DBusErrorReply.failed("socketpair")
        }
        headset = pair[0]
        return [.unixDescriptor(DBusDescriptor(owning: pair[1]))]
    }

    /// The headset sends a command.
    public func command(_ text: String) -> Bool {
        guard let headset else { return false }
        let bytes = Array(text.utf8)
        return bytes.withUnsafeBytes { send(headset, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) } == bytes.count
    }

    /// The headset disconnects.
    public func hangUp() {
        if let headset { close(headset) }
        headset = nil
    }
}
