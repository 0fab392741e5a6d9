// When a change of the network is worth an attempt to connect.
import QUIC
import Testing

@testable import RelayClient

@Suite struct KnownAddressesTests {
    private static let relay = SocketAddress("192.0.2.1", port: 1) ?? .any()

    private static func route(_ number: Int) -> NetworkRoute {
        NetworkRoute(source: SocketAddress("198.51.100.\(number)", port: 0) ?? .any(), interface: "net\(number)")
    }

    private var known = KnownAddresses()

    @Test mutating func `another route is worth an attempt, and a change elsewhere is not`() {
        known.know([Self.relay]) { _ in Self.route(1) }
        #expect(!known.noteChange(.changed, isNumeric: true) { _ in Self.route(1) })
        #expect(known.noteChange(.changed, isNumeric: true) { _ in Self.route(2) })
        #expect(known.noteChange(.woke, isNumeric: true) { _ in Self.route(2) })
    }

    @Test mutating func `the same network that is back is worth an attempt`() {
        known.know([Self.relay]) { _ in Self.route(1) }
        #expect(!known.noteChange(.changed, isNumeric: true) { _ in nil })
        #expect(known.noteChange(.changed, isNumeric: true) { _ in Self.route(1) })
    }

    @Test mutating func `without a route only a name may have another address`() {
        known.know([Self.relay]) { _ in Self.route(1) }
        #expect(known.noteChange(.changed, isNumeric: false) { _ in nil })
    }

    @Test mutating func `nothing is known before the first look-up, and little after it`() {
        #expect(known.noteChange(.changed, isNumeric: false) { _ in nil })
        known.know(Array(repeating: Self.relay, count: 100)) { _ in nil }
        #expect(known.addresses.count == KnownAddresses.countMaximum)
    }
}
